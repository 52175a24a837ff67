/** Texts as the server keeps them. */
import { EXCERPT_BYTES_MAX } from "./limits.js";

/**
 * The beginning of a text: whole characters, as many as are kept. Half a character (a lone surrogate), which the server
 * would refuse, becomes the sign for one that is missing.
 *
 * @internal
 */
export function excerpt(text: string): string {
  const bytes = new Uint8Array(EXCERPT_BYTES_MAX);
  // A character is at least one byte, so what is cut off here would not fit.
  const { written } = new TextEncoder().encodeInto(text.slice(0, EXCERPT_BYTES_MAX), bytes);
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(0, written));
}

/**
 * An error as text, with its name unless that says nothing. Anything can be thrown, also what has no text.
 *
 * @internal
 */
export function errorText(error: unknown, named = true): string {
  try {
    const text = error instanceof Error ? (named ? `${error.name}: ${error.message}` : error.message) : String(error);
    return excerpt(text);
  } catch {
    return "an error that cannot be shown";
  }
}
