/** Scenarios that only hold on a machine that keeps its pace. */

const TRIES_MAX = 5;
const LOOK_EVERY_MS = 50;

/** Runs a scenario. One that fails is run again if this process stood still for `mostMs` meanwhile. */
export async function undisturbed(mostMs: number, scenario: () => Promise<void>): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    let last = performance.now();
    let longest = 0;
    const look = () => {
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
    };
    const watch = setInterval(look, LOOK_EVERY_MS);
    try {
      await scenario();
      return;
    } catch (error) {
      look();
      if (longest < mostMs || tries === TRIES_MAX) throw error;
    } finally {
      clearInterval(watch);
    }
  }
}
