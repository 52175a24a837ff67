// The life of a job as a drawing: when it was taken in, when it was set for, each attempt, the waits between, its end.

import { h, s } from "/assets/dom.js";
import { exact, span } from "/assets/time.js";

const WIDTH = 900;
const LEFT = 90;
const RIGHT = 20;
const ROW = 26;
// Closer than this, names of marks would touch.
const NEAR = 75;

// What happened, in order: name, instant, class.
export function events(job, attempts) {
  const list = [{ name: "taken in", at: job.created_at, state: "scheduled" }];
  list.push({ name: job.schedule_id ? "set for (its schedule's time)" : "first set for", at: job.fire_at, state: "scheduled" });
  for (const attempt of attempts) {
    list.push({ name: `attempt ${attempt.attempt} began, by ${attempt.worker}`, at: attempt.started_at, state: "running" });
    if (attempt.finished_at) list.push({ name: `attempt ${attempt.attempt} ended`, at: attempt.finished_at, state: attempt.state, detail: attempt.detail, code: attempt.status_code });
    else if (attempt.lease_until) list.push({ name: `attempt ${attempt.attempt}: lease holds until`, at: attempt.lease_until, state: "running" });
  }
  if (["scheduled", "retrying", "ready"].includes(job.state) && job.run_at !== job.fire_at) list.push({ name: job.state === "retrying" ? "to be tried again" : "set for", at: job.run_at, state: job.state });
  if (job.expires_at) list.push({ name: "expires", at: job.expires_at, state: "expired" });
  if (job.finished_at) list.push({ name: "over", at: job.finished_at, state: job.state, detail: job.reason });
  return list.map((event) => ({ ...event, ms: Date.parse(event.at) })).sort((a, b) => a.ms - b.ms);
}

// Marks that would lie on one another share a place.
function together(marks, x) {
  const places = [];
  for (const [name, ms] of marks.sort((a, b) => a[1] - b[1])) {
    const last = places.at(-1);
    if (last && x(ms) - last.at < NEAR * last.names.length) last.names.push(name);
    else places.push({ at: x(ms), names: [name], ms });
  }
  return places;
}

export function timeline(job, attempts) {
  const list = events(job, attempts);
  const live = !job.finished_at;
  const times = list.filter(({ name }) => name !== "expires").map(({ ms }) => ms).concat(live ? [Date.now()] : []);
  const [start, end] = [Math.min(...times), Math.max(...times, Math.min(...times) + 10)];
  const x = (ms) => LEFT + ((Math.min(Math.max(ms, start), end) - start) / (end - start)) * (WIDTH - LEFT - RIGHT);
  const rows = Math.max(attempts.length, 1);
  const height = rows * ROW + 30;
  const bars = attempts.map((attempt, index) => {
    const from = Date.parse(attempt.started_at);
    const to = attempt.finished_at ? Date.parse(attempt.finished_at) : Math.max(Date.now(), from);
    const said = `Attempt ${attempt.attempt}: ${attempt.state}, ${span(to - from)}`;
    const y = index * ROW + 8;
    return [
      s("text", { x: LEFT - 8, y: y + 13, "text-anchor": "end" }, `attempt ${attempt.attempt}`),
      s("rect", { class: `span ${/^[a-z_]+$/.test(attempt.state) ? attempt.state : ""}`, x: x(from), y, width: Math.max(x(to) - x(from), 4), height: 16, rx: 3 }, s("title", {}, said)),
    ];
  });
  const waits = ["scheduled", "retrying", "ready"].includes(job.state);
  const marks = [["taken in", Date.parse(job.created_at)], ["set for", Date.parse(job.fire_at)], waits && job.run_at !== job.fire_at && [job.state === "retrying" ? "tried again" : "now set for", Date.parse(job.run_at)], live ? ["now", Date.now()] : ["over", Date.parse(job.finished_at)]];
  const placed = together(marks.filter(Boolean), x).map(({ at, names, ms }) => {
    const anchor = at > WIDTH - 90 ? "end" : at < LEFT + 60 ? "start" : "middle";
    return [s("line", { class: "mark", x1: at, x2: at, y1: 2, y2: rows * ROW + 8 }, s("title", {}, `${names.join(", ")}: ${exact(ms)}`)), s("text", { x: at, y: rows * ROW + 22, "text-anchor": anchor }, names.join(" · "))];
  });
  const label = `${attempts.length} attempts within ${span(end - start)}`;
  return h("div", { class: "scroll" }, s("svg", { class: "fires timeline", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label },
    s("rect", { class: "wait", x: x(start), y: 4, width: x(end) - x(start), height: rows * ROW, rx: 4 }), bars, placed));
}
