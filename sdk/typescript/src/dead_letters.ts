/** Jobs whose attempts are used up: looking at them, running them again, throwing them away. */
import { keyOf, type CallOptions, type ChangeOptions } from "./call_options.js";
import type { Duration } from "./duration.js";
import type { BulkAnswer, Job, JobFilter, Page, PageOptions, Target, Time } from "./job.js";
import { filterQuery, pageQuery } from "./query.js";
import type { Transport } from "./transport.js";

/** Which dead letters are meant. */
export type DeadLetterFilter = Omit<JobFilter, "state">;

/** How a dead letter runs again. */
export interface Replay {
  /** Another payload. */
  payload?: unknown;
  target?: Target;
  targetUrl?: string;
  runAt?: Time;
  delay?: Duration;
}

/** The dead letters of a client; see `client.deadLetters`. */
export class DeadLetters {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** One page of dead letters, latest first. */
  async list(filter: DeadLetterFilter & PageOptions & { payload?: boolean } = {}, options: CallOptions = {}): Promise<Page<Job>> {
    const payload = filter.payload === undefined ? undefined : String(filter.payload);
    const query = { ...filterQuery(filter), ...pageQuery(filter), payload };
    return this.#transport.send({ method: "GET", path: "/dead-letters", query, signal: options.signal });
  }

  /** Runs a dead letter again, perhaps with another payload, target or time. */
  async replay(id: string, change: Replay = {}, options: ChangeOptions = {}): Promise<Job> {
    const path = `/dead-letters/${encodeURIComponent(id)}/replay`;
    return this.#post(path, change, options);
  }

  /** Runs many again, by `ids` or `filter`, perhaps at a `rate` (jobs per second). */
  async replayMany(
    which: { ids?: string[]; filter?: DeadLetterFilter; rate?: number; runAt?: Time; delay?: Duration; cursor?: string },
    options: ChangeOptions = {},
  ): Promise<BulkAnswer> {
    return this.#post("/dead-letters/replay", which, options);
  }

  /** Throws a dead letter away. */
  async discard(id: string, options: ChangeOptions = {}): Promise<void> {
    const path = `/dead-letters/${encodeURIComponent(id)}`;
    await this.#transport.send({ method: "DELETE", path, headers: keyOf(options), signal: options.signal });
  }

  /** Throws many away; `all` is needed where no filter is given. With `nextCursor` in the answer there are more. */
  async discardMany(
    filter: DeadLetterFilter & { all?: boolean; cursor?: string },
    options: ChangeOptions = {},
  ): Promise<BulkAnswer> {
    const query = { ...filterQuery(filter), cursor: filter.cursor, all: filter.all ? "true" : undefined };
    return this.#transport.send({ method: "DELETE", path: "/dead-letters", query, headers: keyOf(options), signal: options.signal });
  }

  async #post<T>(path: string, body: unknown, options: ChangeOptions): Promise<T> {
    return this.#transport.send({ method: "POST", path, body, headers: keyOf(options), signal: options.signal });
  }
}
