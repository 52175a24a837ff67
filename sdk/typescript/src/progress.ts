/** What a handler says of its progress. */
import { errorText } from "./texts.js";

/**
 * The value as the server will know it: later changes of it are not seen.
 *
 * @throws TypeError when it is no JSON. Told only when it is sent, it would take a heartbeat along.
 * @internal
 */
export function progressOf(value: unknown): unknown {
  const text = written(value);
  if (text === undefined) throw new TypeError(`the progress is no JSON: it is of type ${typeof value}; give null for nothing`);
  return JSON.parse(text);
}

function written(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    // Nested too deep to become JSON, or its own `toJSON` threw, which may be anything.
    throw new TypeError(`the progress is no JSON: ${errorText(error, false)}`, { cause: error });
  }
}
