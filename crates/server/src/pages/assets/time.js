// Times as people read them: how far away, and exactly. Relative times keep up by themselves.

import { h, text } from "/assets/dom.js";

const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
];

// A length of time in its two largest units.
export function span(ms) {
  const size = Math.abs(ms);
  if (size < 1_000) return `${Math.round(size)} ms`;
  if (size < 10_000) return `${(size / 1_000).toFixed(1)} s`;
  const first = UNITS.findIndex(([unit]) => size >= unit);
  const [unit, name] = UNITS[first];
  const whole = Math.floor(size / unit);
  const next = UNITS[first + 1];
  const rest = next && whole < 10 ? Math.floor((size % unit) / next[0]) : 0;
  return rest > 0 ? `${whole} ${name} ${rest} ${next[1]}` : `${whole} ${name}`;
}

function relative(at) {
  const ms = at - Date.now();
  if (Math.abs(ms) < 1_500) return "now";
  const rounded = Math.round(ms / 1_000) * 1_000;
  return ms > 0 ? `in ${span(rounded)}` : `${span(rounded)} ago`;
}

const exactly = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const hourMinute = (at) => clock.format(at);
export const exact = (at) => exactly.format(at);

// A time as the API writes it, relative and kept up to date; the exact one is in its title.
export function ago(time) {
  if (!time) return h("span", { class: "soft" }, "–");
  const at = Date.parse(time);
  return h("time", { datetime: time, title: `${exactly.format(at)} (${time})`, "data-at": at }, relative(at));
}

// The same instant with both clocks, for where people compare.
export const full = (time) => (time ? h("span", {}, h("time", { datetime: time }, time.replace("T", " ").replace("Z", " UTC")), " (", ago(time), ")") : "–");

setInterval(() => {
  if (document.hidden) return;
  for (const node of document.querySelectorAll("time[data-at]")) text(node, relative(Number(node.dataset.at)));
}, 1_000);

function partsIn(zone) {
  try {
    return new Intl.DateTimeFormat("en-US", {
      timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    });
  } catch {
    return null;
  }
}

function offsetMs(format, at) {
  const part = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - Math.floor(at / 1_000) * 1_000;
}

// When the clocks of a zone are moved between two instants, and by how much. Exact to the minute.
export function clockChanges(zone, from, to) {
  const format = partsIn(zone);
  if (format === null) return [];
  const changes = [];
  const step = 6 * 3_600_000;
  let before = offsetMs(format, from);
  for (let start = from; start < to; start += step) {
    const after = offsetMs(format, Math.min(start + step, to));
    if (after === before) continue;
    let [low, high] = [start, Math.min(start + step, to)];
    while (high - low > 30_000) {
      const middle = (low + high) / 2;
      if (offsetMs(format, middle) === before) low = middle;
      else high = middle;
    }
    changes.push({ zone, at: Math.round(high / 60_000) * 60_000, byMs: after - before });
    before = after;
  }
  return changes;
}

// The wall clock of a zone at an instant.
export function inZone(time, zone) {
  try {
    const at = Date.parse(time);
    const second = at % 60_000 === 0 ? {} : { second: "2-digit" };
    return new Intl.DateTimeFormat(undefined, { timeZone: zone, weekday: "short", day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", ...second, hourCycle: "h23", timeZoneName: "short" }).format(at);
  } catch {
    return time;
  }
}
