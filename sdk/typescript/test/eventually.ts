/** Waiting in tests: for a condition, with a deadline that only a broken build meets. */
import { setTimeout as sleep } from "node:timers/promises";

const DEADLINE_MS = 60_000;

/** Looks until `look` gives something, and gives that. */
export async function eventually<T>(what: string, look: () => T | undefined | false | Promise<T | undefined | false>): Promise<T> {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`waited in vain for: ${what}`);
    await sleep(20);
  }
}
