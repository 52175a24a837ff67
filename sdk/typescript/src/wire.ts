/**
 * Names on the wire (`run_at`) and in this package (`runAt`). Only names of the API are changed: what belongs to the
 * caller (payloads, labels, headers, results) passes through untouched.
 */

const OPAQUE = new Set(["payload", "labels", "headers", "result", "progress", "counts"]);

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename));
  if (value === null || typeof value !== "object") return value;
  const out: Record<string, unknown> = {};
  for (const [name, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    out[rename(name)] = OPAQUE.has(name) ? inner : renamed(inner, rename);
  }
  return out;
}

/**
 * From this package's names to the API's; dates become texts, what is undefined is left out.
 *
 * @internal
 */
export function toWire(value: unknown): unknown {
  return renamed(value, (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}

/**
 * From the API's names to this package's.
 *
 * @internal
 */
export function fromWire(value: unknown): unknown {
  return renamed(value, (name) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()));
}
