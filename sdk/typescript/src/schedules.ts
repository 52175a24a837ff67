/** Creating, asking and changing schedules. */
import { keyOf, type CallOptions, type ChangeOptions } from "./call_options.js";
import type { Page, PageOptions, Time } from "./job.js";
import { pageQuery } from "./query.js";
import type { Backfilled, Fire, Firing, NewSchedule, Schedule, Timing, Triggered } from "./schedule.js";
import type { Transport } from "./transport.js";

/** What calls that change a schedule take. */
export interface VersionOptions extends ChangeOptions {
  /** Refuse with `StaleVersionError` if the schedule's `version` is another. */
  ifVersion?: number;
}

/** The schedules of a client; see `client.schedules`. */
export class Schedules {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a schedule. With a key that is known, answers with the first one and `duplicate: true`. A key that is made up
   * for the call is not the schedule's own.
   */
  async create<P = unknown>(schedule: NewSchedule<P>, options: CallOptions = {}): Promise<Schedule<P>> {
    const { signal } = options;
    // In the body it would be the beginning of its jobs' keys, too.
    const headers = schedule.idempotencyKey === undefined ? keyOf({}) : {};
    return this.#transport.send({ method: "POST", path: "/schedules", body: schedule, headers, signal, paced: true });
  }

  /** Creates the schedule of that name, or makes it what is given. */
  async put<P = unknown>(name: string, schedule: NewSchedule<P>, options: VersionOptions = {}): Promise<Schedule<P>> {
    const path = `/schedules/by-name/${encodeURIComponent(name)}`;
    return this.#transport.send({ method: "PUT", path, body: schedule, headers: versioned(options), signal: options.signal });
  }

  /** The schedule as it is now. */
  async get<P = unknown>(id: string, options: CallOptions = {}): Promise<Schedule<P>> {
    return this.#transport.send({ method: "GET", path: at(id), signal: options.signal });
  }

  /** One page of schedules. */
  async list(
    filter: PageOptions & { state?: Schedule["state"]; type?: string; name?: string; calendar?: string } = {},
    options: CallOptions = {},
  ): Promise<Page<Schedule>> {
    const { state, type, name, calendar } = filter;
    const query = { ...pageQuery(filter), state, type, name, calendar };
    return this.#transport.send({ method: "GET", path: "/schedules", query, signal: options.signal });
  }

  /** Changes the fields that are given; `null` takes one away. */
  async patch<P = unknown>(
    id: string,
    change: { [K in keyof NewSchedule<P>]?: NewSchedule<P>[K] | null },
    options: VersionOptions = {},
  ): Promise<Schedule<P>> {
    return this.#transport.send({ method: "PATCH", path: at(id), body: change, headers: versioned(options), signal: options.signal });
  }

  /** Stops it firing, until it is resumed. */
  async pause(id: string, options: VersionOptions = {}): Promise<Schedule> {
    return this.#order(id, "pause", undefined, options);
  }

  /** Lets it fire again. */
  async resume(id: string, options: VersionOptions = {}): Promise<Schedule> {
    return this.#order(id, "resume", undefined, options);
  }

  /** Runs its job now, besides its times. */
  async trigger(id: string, options: VersionOptions = {}): Promise<Triggered> {
    return this.#order(id, "trigger", undefined, options);
  }

  /** Makes the jobs of a stretch of instants; those made before are not made again. */
  async backfill(id: string, stretch: { from: Time; to?: Time; rate?: number }, options: ChangeOptions = {}): Promise<Backfilled> {
    return this.#order(id, "backfill", stretch, options);
  }

  /** Deletes it. */
  async delete(id: string, options: VersionOptions = {}): Promise<void> {
    await this.#transport.send({ method: "DELETE", path: at(id), headers: versioned(options), signal: options.signal });
  }

  /** When a schedule would fire; nothing is created. */
  async preview(timing: Timing & { from?: Time; count?: number }, options: CallOptions = {}): Promise<Fire[]> {
    const answer = await this.#transport.send<{ fires: Fire[] }>({
      method: "POST",
      path: "/schedules/preview",
      body: timing,
      signal: options.signal,
    });
    return answer.fires;
  }

  /** When it fires next. */
  async next(id: string, count?: number, options: CallOptions = {}): Promise<Fire[]> {
    const query = { count: count?.toString() };
    const path = `${at(id)}/next`;
    return (await this.#transport.send<{ fires: Fire[] }>({ method: "GET", path, query, signal: options.signal })).fires;
  }

  /** What became of each of its instants, newest first. */
  async firings(id: string, page: PageOptions = {}, options: CallOptions = {}): Promise<Page<Firing>> {
    return this.#transport.send({ method: "GET", path: `${at(id)}/firings`, query: pageQuery(page), signal: options.signal });
  }

  async #order<T>(id: string, verb: string, body: unknown, options: VersionOptions): Promise<T> {
    const headers = versioned(options);
    return this.#transport.send({ method: "POST", path: `${at(id)}/${verb}`, body, headers, signal: options.signal });
  }
}

function versioned(options: VersionOptions): Record<string, string | undefined> {
  const version = options.ifVersion;
  return { ...keyOf(options), "if-match": version === undefined ? undefined : `"${version}"` };
}

function at(id: string): string {
  return `/schedules/${encodeURIComponent(id)}`;
}
