// The fires of many schedules over a day, drawn: a row for each, ticks for fires, on top how many come together, and where
// clocks are moved.

import { ask, get } from "/assets/api.js";
import { h, s } from "/assets/dom.js";
import { each } from "/assets/parts.js";
import { clockChanges, exact, hourMinute } from "/assets/time.js";

export const DAY_MS = 86_400_000;
const FEW = 100;
const MANY = 1_000;
// Asked for a day of one schedule at most this often; what fires even more often is drawn as a band.
const ASKED_MAX = 3;
// What fires more often than this falls together with everything, which says nothing.
const OFTEN = 200;
const AT_ONCE = 4;
const BIN_MS = 10 * 60_000;
const WIDTH = 1_000;
const LEFT = 170;
const RIGHT = 10;
const TOP = 74;
const ROW = 22;
const BARS = 40;

// The time fields of a schedule, as a preview takes them.
export function timeFields(schedule) {
  const fields = {};
  for (const name of ["cron_expr", "every", "timezone", "dst", "start_at", "end_at", "exclude", "window"]) {
    if (schedule[name] !== undefined && schedule[name] !== null) fields[name] = schedule[name];
  }
  // An interval is counted from where the schedule began.
  if (fields.every && !fields.start_at) fields.start_at = schedule.created_at;
  return fields;
}

async function firesFrom(schedule, from, fromNow, signal) {
  const until = from + DAY_MS;
  const path = `/v1/schedules/${encodeURIComponent(schedule.id)}/next`;
  const after = (time, count) => ask("/v1/schedules/preview", { ...timeFields(schedule), schedule: schedule.id, from: time, count }, signal);
  const { fires } = fromNow ? await get(path, { count: FEW }, signal) : await after(new Date(from).toISOString(), FEW);
  const isShort = () => Date.parse(fires.at(-1).fire_at) < until;
  let full = fires.length === FEW && isShort();
  for (let asked = 1; full && asked < ASKED_MAX; asked += 1) {
    const more = (await after(fires.at(-1).fire_at, MANY)).fires;
    fires.push(...more);
    full = more.length === MANY && isShort();
  }
  const shown = fires.map((fire) => ({ at: Date.parse(fire.run_at), note: fire.note })).filter(({ at }) => at < until);
  return { schedule, fires: shown, bandFrom: full ? shown.at(-1).at : null };
}

// The fires of each schedule within a day from `from`.
export async function collect(schedules, from, fromNow, signal) {
  const rows = [];
  await each(schedules.filter(({ state }) => state === "active"), AT_ONCE, async (schedule, index) => {
    try {
      rows[index] = await firesFrom(schedule, from, fromNow, signal);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      rows[index] = { schedule, fires: [], bandFrom: null, fault: problem.message };
    }
  });
  return rows.filter((row) => row !== undefined);
}

// Minutes in which several schedules fire, the busiest first.
export function collisions(rows) {
  const minutes = new Map();
  for (const { schedule, fires } of rows.filter((row) => row.fires.length <= OFTEN)) {
    for (const { at } of fires) {
      const minute = Math.floor(at / 60_000) * 60_000;
      if (!minutes.has(minute)) minutes.set(minute, new Set());
      minutes.get(minute).add(schedule.id);
    }
  }
  return new Map([...minutes].filter(([, ids]) => ids.size > 1).map(([at, ids]) => [at, ids.size]).sort((a, b) => b[1] - a[1] || a[0] - b[0]));
}

function hours(from, x, bottom) {
  const out = [];
  for (let at = Math.ceil(from / 3_600_000) * 3_600_000; at <= from + DAY_MS; at += 3_600_000) {
    const labelled = new Date(at).getHours() % 3 === 0;
    out.push(s("line", { class: "rule", x1: x(at), x2: x(at), y1: labelled ? TOP - 8 : TOP - 3, y2: bottom }));
    if (labelled) out.push(s("text", { x: x(at), y: TOP - 12, "text-anchor": "middle" }, hourMinute(at)));
  }
  return out;
}

function together(rows, from, x) {
  const bins = new Map();
  const count = (bin, fires) => bins.set(bin, (bins.get(bin) ?? 0) + fires);
  for (const { fires, bandFrom } of rows) {
    for (const { at } of fires) count(Math.floor(at / BIN_MS), 1);
    if (bandFrom === null) continue;
    // A band goes on at the rate so far.
    const each = (fires.length * BIN_MS) / Math.max(bandFrom - from, BIN_MS);
    for (let bin = Math.floor(bandFrom / BIN_MS) + 1; bin * BIN_MS < from + DAY_MS; bin += 1) count(bin, each);
  }
  const most = Math.max(...bins.values(), 1);
  const bars = [...bins].map(([bin, fires]) => {
    const height = Math.max((fires / most) * BARS, 2);
    const left = Math.max(x(bin * BIN_MS), LEFT);
    return s("rect", { class: "tick", x: left, y: BARS - height + 4, width: Math.max(x((bin + 1) * BIN_MS) - left - 0.5, 0.5), height }, s("title", {}, `${hourMinute(bin * BIN_MS)}: ${Math.round(fires)} fires in 10 min`));
  });
  return [s("text", { x: LEFT - 8, y: 16, "text-anchor": "end" }, `most in 10 min: ${Math.round(most)}`), bars];
}

function row({ schedule, fires, bandFrom, fault }, index, x, end, crowded) {
  const y = TOP + index * ROW;
  const name = schedule.name ?? schedule.id;
  const short = name.length > 24 ? `${name.slice(0, 23)}…` : name;
  const ticks = fires.map(({ at, note }) => {
    const several = fires.length <= OFTEN && crowded.get(Math.floor(at / 60_000) * 60_000);
    const said = `${name}: ${exact(at)}${note ? `, ${note}` : ""}${several ? `, ${several} schedules in this minute` : ""}`;
    return s("rect", { class: `tick ${note ? "noted" : several ? "many" : ""}`, x: x(at) - 1, y: y + 4, width: 2.4, height: ROW - 8 }, s("title", {}, said));
  });
  return [
    s("line", { class: "rule", x1: 0, x2: WIDTH, y1: y + ROW, y2: y + ROW }),
    s("a", { href: `/schedules/${encodeURIComponent(schedule.id)}` }, s("text", { class: "row-name", x: 4, y: y + 15 }, short, s("title", {}, `${name} (${schedule.timezone})`))),
    bandFrom !== null && s("rect", { class: "dense", x: x(bandFrom), y: y + 4, width: Math.max(x(end) - x(bandFrom), 0), height: ROW - 8 }, s("title", {}, "it goes on like this")),
    fault ? s("text", { x: LEFT + 6, y: y + 15 }, fault.slice(0, 120)) : ticks,
  ];
}

// The drawing.
export function drawing(rows, from, fromNow) {
  const end = from + DAY_MS;
  const x = (at) => LEFT + ((at - from) / DAY_MS) * (WIDTH - LEFT - RIGHT);
  const height = TOP + Math.max(rows.length, 1) * ROW + 22;
  const crowded = collisions(rows);
  const zones = [...new Set(rows.map(({ schedule }) => schedule.timezone))];
  const changes = zones.flatMap((zone) => clockChanges(zone, from, end));
  const marks = changes.map(({ zone, at, byMs }, index) => [
    s("line", { class: "dst", x1: x(at), x2: x(at), y1: TOP - 6, y2: height - 18 }, s("title", {}, `${zone}: clocks go ${byMs > 0 ? "ahead" : "back"} at ${exact(at)}`)),
    s("text", { class: "dst-text", x: Math.min(x(at) + 4, WIDTH - 4), y: height - 5 - (index % 2) * 11, "text-anchor": x(at) > WIDTH - 190 ? "end" : "start" }, `DST: ${zone} ${byMs > 0 ? "+" : "−"}${Math.abs(byMs) / 60_000} min`),
  ]);
  const now = fromNow && s("line", { class: "now", x1: x(Date.now()), x2: x(Date.now()), y1: TOP - 6, y2: height - 18 });
  const fires = rows.reduce((sum, next) => sum + next.fires.length, 0);
  const svg = s("svg", { class: "fires", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${fires} fires of ${rows.length} schedules in 24 hours` },
    hours(from, x, height - 18), together(rows, from, x), rows.map((next, index) => row(next, index, x, end, crowded)), marks, now || null);
  return { node: h("div", { class: "scroll" }, svg), crowded, changes, fires };
}
