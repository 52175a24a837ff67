/** One HTTP exchange with the server, repeated as long as the patience lasts: a change carries a key, so that is safe. */
import { performance } from "node:perf_hooks";
import { ConnectionError, refusal, type ApiError, type Problem } from "./errors.js";
import { PATIENCE_MS, REQUEST_TIMEOUT_MS } from "./limits.js";
import { backoffMs, pause } from "./pause.js";
import { exchangeByFiles, type Exchange, type TlsOptions } from "./tls.js";
import { fromWire, toWire } from "./wire.js";

/** How to reach a server. */
export interface ConnectOptions {
  /** By default `TIDEWHEEL_URL`, or `http://127.0.0.1:7400`. */
  url?: string;
  /** The key to show; by default `TIDEWHEEL_KEY`, or none. */
  key?: string;
  /** The tenant to act for; by default `TIDEWHEEL_TENANT`, or the key's own. */
  tenant?: string;
  /** How long one exchange may take, in milliseconds; 30,000 by default. */
  timeoutMs?: number;
  /** How long a call goes on trying, in milliseconds; 60,000 by default. */
  patienceMs?: number;
  /** Whom to trust, and what to show, over `https://`; by default as the environment says. */
  tls?: TlsOptions;
  /** Used instead of Node's own `fetch`, and of `tls`. */
  fetch?: typeof fetch;
}

/** @internal */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | undefined>;
  body?: unknown;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal | undefined;
  /** When the signal comes while the answer does: how long the rest of that may take. By default it is not waited for. */
  restMs?: number;
  timeoutMs?: number;
  patienceMs?: number;
  /** Waits with all others like it when one of them was told to slow down. */
  paced?: boolean;
  /** Tried again after any fault of the server's own (500, too): for what must not get lost. */
  insistent?: boolean;
}

/** Answers that may be different a little later. */
const PASSING = new Set([408, 429, 502, 503, 504]);

/** @internal */
export class Transport {
  readonly url: string;
  /** How long a call goes on trying unless it says otherwise. */
  readonly patienceMs: number;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #fetch: Exchange;
  #notBefore = 0;

  constructor(options: ConnectOptions) {
    this.url = (options.url ?? process.env["TIDEWHEEL_URL"] ?? "http://127.0.0.1:7400").replace(/\/+$/, "");
    const key = options.key ?? process.env["TIDEWHEEL_KEY"];
    const tenant = options.tenant ?? process.env["TIDEWHEEL_TENANT"];
    this.#headers = {
      accept: "application/json",
      ...(key ? { authorization: `Bearer ${key.trim()}` } : {}),
      ...(tenant ? { "tidewheel-tenant": tenant } : {}),
    };
    this.#timeoutMs = options.timeoutMs ?? REQUEST_TIMEOUT_MS;
    this.patienceMs = options.patienceMs ?? PATIENCE_MS;
    this.#fetch = options.fetch ?? exchangeByFiles(options.tls) ?? fetch;
  }

  /** Sends a call until it is answered for good, and gives the answer in this package's names. */
  async send<T>(call: Call): Promise<T> {
    // Outside of the tries: what is no JSON will not become so.
    const body = call.body === undefined ? undefined : JSON.stringify(toWire(call.body));
    const deadline = performance.now() + (call.patienceMs ?? this.patienceMs);
    for (let tries = 0; ; tries += 1) {
      if (call.paced) await this.#pace(deadline, call.signal);
      const result = await this.#exchange(call, body);
      if ("answer" in result) return result.answer as T;
      const waitMs = Math.max(backoffMs(tries), result.retryAfterMs ?? 0);
      if (!result.passing || performance.now() + waitMs > deadline) throw result.error;
      if (call.paced && result.retryAfterMs !== undefined) {
        this.#notBefore = Math.max(this.#notBefore, performance.now() + result.retryAfterMs);
      }
      await pause(waitMs, call.signal);
    }
  }

  async #pace(deadline: number, signal?: AbortSignal): Promise<void> {
    const waitMs = Math.min(this.#notBefore, deadline) - performance.now();
    if (waitMs > 0) await pause(waitMs, signal);
  }

  async #exchange(call: Call, body: string | undefined): Promise<{ answer: unknown } | Failed> {
    call.signal?.throwIfAborted();
    // A controller of its own for each exchange: joining a long-lived signal anew each time would pile up on it.
    const control = new AbortController();
    let answering = false;
    let rest: NodeJS.Timeout | undefined;
    const giveUp = () => {
      control.abort(call.signal?.reason);
    };
    const abort = () => {
      if (answering && call.restMs !== undefined) rest = setTimeout(giveUp, call.restMs);
      else giveUp();
    };
    call.signal?.addEventListener("abort", abort, { once: true });
    const timeoutMs = call.timeoutMs ?? this.#timeoutMs;
    const timer = setTimeout(() => {
      control.abort(new ConnectionError(`no answer from ${this.url} within ${timeoutMs} ms`));
    }, timeoutMs);
    try {
      const response = await this.#fetch(this.#address(call), {
        method: call.method,
        headers: this.#headersOf(call),
        signal: control.signal,
        // Followed, a change would become a request to read, whose answer is then taken for that of the change.
        redirect: "manual",
        ...(body === undefined ? {} : { body }),
      });
      answering = true;
      return read(call, response, await response.text());
    } catch (error) {
      if (call.signal?.aborted) throw call.signal.reason;
      return this.#unanswered(error);
    } finally {
      clearTimeout(timer);
      clearTimeout(rest);
      call.signal?.removeEventListener("abort", abort);
    }
  }

  #address(call: Call): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined) query.set(name, value);
    }
    const text = query.toString();
    return `${this.url}/v1${call.path}${text ? `?${text}` : ""}`;
  }

  #headersOf(call: Call): Record<string, string> {
    const headers = { ...this.#headers };
    if (call.body !== undefined) headers["content-type"] = "application/json";
    for (const [name, value] of Object.entries(call.headers ?? {})) {
      if (value !== undefined) headers[name] = value;
    }
    return headers;
  }

  #unanswered(error: unknown): Failed {
    if (error instanceof ConnectionError) return { error, passing: true };
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    const code = typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : "";
    const why = code || (cause instanceof Error ? cause.message : String(cause));
    const failure = new ConnectionError(`no answer from ${this.url}: ${why}`, { cause });
    return { error: failure, passing: true };
  }
}

interface Failed {
  error: ApiError | ConnectionError;
  /** Whether it may go better a little later. */
  passing: boolean;
  retryAfterMs?: number | undefined;
}

function read(call: Call, response: Response, text: string): { answer: unknown } | Failed {
  if (response.ok) return { answer: text === "" ? undefined : fromWire(JSON.parse(text)) };
  const retryAfterMs = retryAfter(response.headers.get("retry-after"));
  const error = refusal(problem(response, text), retryAfterMs);
  const passing = PASSING.has(response.status) || (call.insistent === true && response.status >= 500);
  return { error, passing, retryAfterMs };
}

/** The problem document, or one made up where something between us and the server answered. */
function problem(response: Response, text: string): Problem {
  try {
    const document = JSON.parse(text) as Partial<Problem> | null;
    if (typeof document?.code === "string") {
      return {
        type: document.type ?? "about:blank",
        title: document.title ?? "",
        status: response.status,
        detail: document.detail ?? "",
        code: document.code,
        ...(document.errors ? { errors: document.errors } : {}),
      };
    }
  } catch {
    // Not JSON: falls through to the status line.
  }
  const title = response.statusText || "refused";
  return { type: "about:blank", title, status: response.status, detail: text.slice(0, 200) || title, code: `http_${response.status}` };
}

function retryAfter(value: string | null): number | undefined {
  if (value === null) return undefined;
  const wait = Number(value);
  const ms = Number.isNaN(wait) ? Date.parse(value) - Date.now() : wait * 1_000;
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}
