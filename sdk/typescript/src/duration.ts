/** Durations as the API reads and prints them. */
import { DURATION_MS_MAX } from "./limits.js";

/** A text such as `"90s"`, `"5m"`, `"1h30m"`, `"250ms"` or `"PT90S"`, or a number of seconds. */
export type Duration = string | number;

/** A week, a day, an hour, a minute, a second, a millisecond: each at most once, in this order. */
const UNITS_MS = [604_800_000n, 86_400_000n, 3_600_000n, 60_000n, 1_000n, 1n];

const NUMBER = "([0-9]+(?:\\.[0-9]{1,9})?)";
const PLAIN = new RegExp(`^${NUMBER}$`);
const WORDS = new RegExp(`^(?=.)(?:${NUMBER}w)?(?:${NUMBER}d)?(?:${NUMBER}h)?(?:${NUMBER}m(?:in)?)?(?:${NUMBER}s)?(?:${NUMBER}ms)?$`);
const ISO = new RegExp(
  `^[Pp](?=.)(?:${NUMBER}[Ww])?(?:${NUMBER}[Dd])?(?:[Tt](?=.)(?:${NUMBER}[Hh])?(?:${NUMBER}[Mm])?(?:${NUMBER}[Ss])?)?$`,
);
const SPACE_AROUND = /^\p{White_Space}+|\p{White_Space}+$/gu;

/**
 * Reads a duration as the server does: what is finer than a millisecond is cut off.
 *
 * @param duration - `"1h30m"`, `"PT90S"` or a number of seconds.
 * @returns Milliseconds.
 * @throws RangeError when it is no duration.
 */
export function durationMs(duration: Duration): number {
  const text = typeof duration === "number" ? written(duration) : duration.replace(SPACE_AROUND, "");
  const numbers = ISO.exec(text) ?? WORDS.exec(PLAIN.test(text) ? `${text}s` : text);
  if (numbers !== null) {
    const ms = UNITS_MS.reduce((sum, unit, place) => sum + times(numbers[place + 1], unit), 0n);
    if (ms <= DURATION_MS_MAX) return Number(ms);
  }
  throw new RangeError(`${typeof duration === "number" ? duration : JSON.stringify(duration)} is no duration`);
}

/** A number of seconds as it is sent, as far as its digits count. */
function written(seconds: number): string {
  // Anything smaller may be sent with an exponent, and comes to nothing.
  if (seconds >= 0 && seconds < 0.001) return "0";
  return String(seconds).replace(/(\.[0-9]{3})[0-9]+$/, "$1");
}

/** By its digits: `1.001 * 1000` is less than 1001. */
function times(number: string | undefined, unit: bigint): bigint {
  const [whole = "0", fraction = "0"] = (number ?? "0").split(".");
  return BigInt(whole) * unit + (BigInt(fraction) * unit) / 10n ** BigInt(fraction.length);
}

/**
 * Prints milliseconds as a number of seconds, which the API takes for a duration.
 *
 * @internal
 */
export function seconds(ms: number): number {
  return Math.round(ms) / 1_000;
}
