/** What calls take besides what they are about. */
import { randomUUID } from "node:crypto";

/** What every call takes. */
export interface CallOptions {
  /** Gives the call up. */
  signal?: AbortSignal;
}

/** What calls that change something take. */
export interface ChangeOptions extends CallOptions {
  /** Sent with every try of the call, so that it is carried out once; made up when not given. */
  idempotencyKey?: string;
}

/** @internal */
export function keyOf(options: ChangeOptions): Record<string, string> {
  const key = options.idempotencyKey ?? randomUUID();
  // The server reads the header's bytes as UTF-8. Here a header is a text of one character for each byte.
  return { "idempotency-key": Buffer.from(key, "utf8").toString("latin1") };
}
