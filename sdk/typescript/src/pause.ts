/** Waiting, in a way that can be called off. */
import { setTimeout as timer } from "node:timers/promises";
import { BACKOFF_BASE_MS, BACKOFF_MAX_MS, TIMER_MS_MAX } from "./limits.js";

/**
 * Waits; rejects with the signal's reason when that is aborted first.
 *
 * @internal
 */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await timer(Math.min(ms, TIMER_MS_MAX), undefined, signal ? { signal } : {});
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  }
}

/**
 * How long to wait before try number `tries` + 1: twice as long each time, and half of it by chance, so that many
 * callers turned away together do not come back together.
 *
 * @internal
 */
export function backoffMs(tries: number): number {
  const full = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** Math.min(tries, 16));
  return full * (0.5 + Math.random() / 2);
}
