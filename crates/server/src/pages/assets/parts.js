// What pages are put together from.

import { h, replace, s } from "/assets/dom.js";
import { problemBox } from "/assets/dialogs.js";

export const STATES = ["scheduled", "ready", "running", "retrying", "succeeded", "dead", "cancelled", "skipped", "expired"];

export const badge = (state) => h("span", { class: `badge ${/^[a-z_]+$/.test(state ?? "") ? state : ""}` }, state ?? "unknown");

const counted = new Intl.NumberFormat("en-US");
export const number = (value) => (value === undefined || value === null ? "–" : counted.format(value));

// A duration in milliseconds, short enough for a tile.
export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : `${(ms / 60_000).toFixed(1)} min`;
}

export const perSecond = (rate) => (rate === null || rate === undefined ? "–" : rate >= 100 ? number(Math.round(rate)) : rate.toFixed(rate < 10 ? 2 : 1));

export const labels = (map) => Object.entries(map ?? {}).map(([name, value]) => [h("span", { class: "tag" }, `${name}=${value}`), " "]);

// Where a job or a schedule's jobs go.
export const destination = (item) => (item.target ? `${item.target.method ?? "POST"} ${item.target.url}` : `queue ${item.queue ?? "default"}`);

export const jobLink = (id, shown = id) => h("a", { href: `/jobs/${encodeURIComponent(id)}`, class: "mono" }, shown);
export const scheduleLink = (id, shown = id) => h("a", { href: `/schedules/${encodeURIComponent(id)}` }, shown);

// An id is long; its end tells it from others.
export const shortId = (id) => (id.length > 16 ? `${id.slice(0, 4)}…${id.slice(-8)}` : id);

export const head = (title, ...actions) => h("div", { class: "head" }, h("h1", {}, title), h("div", { class: "actions" }, actions));

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), children);

export const field = (name, input) => h("label", { class: "field" }, name, input);

export const facts = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// A table; columns are names, or a name and a class.
export function table(columns, { caption } = {}) {
  const body = h("tbody", {});
  const heads = columns.map((column) => (Array.isArray(column) ? h("th", { class: column[1], scope: "col" }, column[0]) : h("th", { scope: "col" }, column)));
  const node = h("div", { class: "scroll" }, h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, heads)), body));
  return { node, body };
}

export const empty = (message) => h("div", { class: "empty" }, message);

// A bar that shows a part of a whole.
export function meter(part, whole, kind = "") {
  const share = whole > 0 ? Math.max(0, Math.min(1, part / whole)) : 0;
  return s("svg", { class: `meter ${kind}`, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { x: 0, y: 0, width: share * 100, height: 10, rx: 1 }));
}

// Shows the fault in place of what could not be shown.
export async function orProblem(place, work) {
  try {
    await work();
  } catch (problem) {
    if (problem.name !== "AbortError") replace(place, problemBox(problem));
  }
}

// Does something with each, a few at a time, in order of arrival.
export async function each(items, atOnce, work) {
  const rest = [...items.entries()];
  await Promise.all(Array.from({ length: Math.min(atOnce, rest.length) }, async () => {
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) await work(next[1], next[0]);
  }));
}

// Buttons to the next page and back to the first, for a list that goes on by cursor.
export function pager({ next, isFirst, go, shown }) {
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: isFirst, click: () => go(null) }, "First page"),
    h("button", { type: "button", disabled: !next, click: () => go(next) }, "Next page"),
    h("span", { class: "soft small" }, shown));
}
