/** Handlers: what runs for a job, and how its payload is checked. */
import type { Context } from "./context.js";
import { Fail } from "./outcomes.js";

/**
 * Runs one attempt of a job. What it returns is the job's result (JSON, at most 8 KiB); what it throws says how the
 * attempt ended: see `Retry`, `Fail`, `Snooze` and `Cancelled`.
 */
export type Handler<P = unknown, R = unknown> = (payload: P, context: Context<P>) => R | Promise<R>;

/** The part of Standard Schema (standardschema.dev) that is used: Zod, Valibot, ArkType and others have it. */
export interface StandardSchema<T> {
  readonly "~standard": {
    readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>;
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
  };
}

/** What a Standard Schema answers. */
export type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** Makes a payload of a known type out of anything, or throws; or a schema that does. */
export type Parse<T> = ((payload: unknown) => T | Promise<T>) | StandardSchema<T>;

/** How a handler is registered. */
export interface HandlerOptions<P> {
  /** Checks the payload before the handler runs. One that does not pass is a dead letter at once: it will not change. */
  parse?: Parse<P>;
}

/** @internal */
export interface Registration {
  readonly handler: Handler<never>;
  readonly parse: Parse<unknown> | undefined;
}

/** @internal */
export function register<P, R>(handler: Handler<P, R>, options: HandlerOptions<P> = {}): Registration {
  return { handler, parse: options.parse };
}

/** @internal */
export async function parsed(parse: Parse<unknown> | undefined, payload: unknown): Promise<unknown> {
  if (parse === undefined) return payload;
  if (!isSchema(parse)) {
    try {
      return await parse(payload);
    } catch (error) {
      throw new Fail(`the payload is not valid: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
  const result = await parse["~standard"].validate(payload);
  if (result.issues === undefined) return result.value;
  const faults = result.issues.map(({ message, path }) => (path?.length ? `${path.map(step).join(".")}: ${message}` : message));
  throw new Fail(`the payload is not valid: ${faults.join("; ")}`);
}

/** A schema may be a function, too, as ArkType's are: called, it returns its faults and does not throw them. */
function isSchema(parse: Parse<unknown>): parse is StandardSchema<unknown> {
  return "~standard" in parse;
}

/** A step of a path is a key, or an object that holds one. */
function step(part: unknown): string {
  return String(typeof part === "object" && part !== null && "key" in part ? part.key : part);
}
