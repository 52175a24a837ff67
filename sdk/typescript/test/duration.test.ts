/** Durations: what is read here is what the server reads, and nothing else. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { durationMs, type Duration } from "tidewheel";
import { startServer } from "tidewheel/testing";

const WEEK_MS = 604_800_000;

const READ: readonly (readonly [Duration, number])[] = [
  ["90s", 90_000],
  ["5m", 300_000],
  ["5min", 300_000],
  ["1h30m", 5_400_000],
  ["1h30min5s", 5_405_000],
  ["1w", WEEK_MS],
  ["1w2d3h4m5s6ms", WEEK_MS + 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_006],
  ["1s500ms", 1_500],
  ["250ms", 250],
  ["1m5ms", 60_005],
  ["1.5h", 5_400_000],
  ["2.5s", 2_500],
  ["0.001s", 1],
  // What is finer than a millisecond is cut off.
  ["1.9ms", 1],
  ["1.0019s", 1_001],
  ["0.999999999s", 999],
  ["0s", 0],
  ["90", 90_000],
  ["0.5", 500],
  ["007s", 7_000],
  [" 90s\n", 90_000],
  ["\u008590s\u00a0", 90_000],
  ["PT90S", 90_000],
  ["PT1H30M", 5_400_000],
  ["pt1h30m", 5_400_000],
  ["PT0.5S", 500],
  ["P1DT1S", 86_401_000],
  ["p1dT1s", 86_401_000],
  ["p1dt1s", 86_401_000],
  ["P1.5D", 129_600_000],
  ["P1W", WEEK_MS],
  ["P1W1D", WEEK_MS + 86_400_000],
  [1.5, 1_500],
  [1.001, 1_001],
  [0.29, 290],
  [1.0019999999999998, 1_001],
  [1e-9, 0],
  [-0, 0],
  // 64 bits with a sign.
  ["9223372036854775807ms", 2 ** 63],
  [9e15, 9e18],
];

const REFUSED: readonly Duration[] = [
  "",
  " ",
  "s",
  "h",
  "soon",
  "5x",
  "5 m",
  "-1s",
  "+1s",
  "1.",
  ".5s",
  "1.s",
  "1.0123456789s",
  "1e3",
  "1,5s",
  "90S",
  "1H",
  "5MIN",
  "5mins",
  "5m1h",
  "1h1h",
  "1m1min",
  "1h30",
  "1hT30m",
  "P",
  "PT",
  "P1DT",
  "P1M",
  "P1Y",
  "P90",
  "P1H",
  "P1S",
  "PT1D",
  "PT1W",
  "PT1M1H",
  "PT1HT1M",
  "T90S",
  "P 1D",
  "PT5MIN",
  "PT5MS",
  "\ufeff90s",
  "\u0665s",
  "9223372036854775808ms",
  "99999999999999d",
  -1,
  -1e-9,
  1e16,
  1e21,
];

describe("durations", () => {
  test("are read in every form, to the millisecond", () => {
    for (const [duration, ms] of READ) assert.equal(durationMs(duration), ms, String(duration));
  });

  test("are told from what is none", () => {
    for (const bad of [...REFUSED, NaN, Infinity]) assert.throws(() => durationMs(bad), RangeError, String(bad));
  });

  test("are the server's", async (t) => {
    const server = await startServer();
    t.after(() => server.stop());
    const client = server.client();
    const all = [...READ.map(([duration]) => duration), ...REFUSED];
    const answers = await client.submitMany(all.map((timeout) => ({ type: "t", delay: "1h", timeout })), { partial: true });
    const read: unknown[] = [];
    for (const answer of answers) {
      if ("id" in answer) {
        read.push(durationMs((await client.get(answer.id)).timeout));
        continue;
      }
      // Out of its bounds it is a duration still, which the refusal names.
      const named = /^(\w+) is not between/.exec(answer.error.detail)?.[1];
      read.push(named === undefined ? answer.error.code : durationMs(named));
    }
    assert.deepEqual(read, [...READ.map(([, ms]) => ms), ...REFUSED.map(() => "invalid_duration")]);
  });
});
