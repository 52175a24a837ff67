/** Durations as the API reads and prints them. */

/** A text such as `"90s"`, `"5m"`, `"1h30m"`, `"250ms"` or `"PT90S"`, or a number of seconds. */
export type Duration = string | number;

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Reads a duration.
 *
 * @param duration - `"1h30m"`, `"PT90S"` or a number of seconds.
 * @returns Milliseconds.
 * @throws RangeError when it is no duration.
 */
export function durationMs(duration: Duration): number {
  if (typeof duration === "number") {
    if (!Number.isFinite(duration) || duration < 0) throw new RangeError(`${duration} is no duration`);
    return Math.round(duration * 1_000);
  }
  const text = duration.trim().toLowerCase().replace(/^p(?:(\d+)d)?t?/, (_, days?: string) => (days ? `${days}d` : ""));
  if (/^\d+(\.\d+)?$/.test(text)) return Math.round(Number(text) * 1_000);
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) throw new RangeError(`${JSON.stringify(duration)} is no duration`);
  let total = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(number) * (UNITS_MS[unit ?? ""] ?? 0);
  }
  return Math.round(total);
}

/**
 * Prints milliseconds as a number of seconds, which the API takes for a duration.
 *
 * @internal
 */
export function seconds(ms: number): number {
  return Math.round(ms) / 1_000;
}
