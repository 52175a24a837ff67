// Schedules, and what fires in the next 24 hours.

import { get, mayChange } from "/assets/api.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { badge, card, destination, empty, field, head, number, orProblem, pager, scheduleLink, table } from "/assets/parts.js";
import { ago, exact, hourMinute } from "/assets/time.js";
import { collect, drawing } from "/assets/pages/fires.js";
import { editSchedule } from "/assets/pages/schedule-form.js";

const EVERY_MS = 5_000;
const PAGE_COUNT = 50;
const CROWDED_SHOWN = 5;
const REDRAW_MS = 5 * 60_000;

const rule = (schedule) => schedule.cron_expr ?? (schedule.every ? `every ${schedule.every}` : "–");

function makeRow(schedule) {
  return h("tr", { "data-row": true }, h("td", {}, scheduleLink(schedule.id, schedule.name ?? schedule.id)), h("td", { class: "fixed" }), h("td", { class: "mono" }), h("td", { class: "wide" }), h("td", { class: "fixed" }), h("td", { class: "fixed wide" }), h("td", { class: "wide" }, h("span", { class: "excerpt" })));
}

function updateRow(row, schedule) {
  const seen = `${schedule.version} ${schedule.state} ${schedule.next_run_at} ${schedule.last_fire_at}`;
  if (row.dataset.seen === seen) return;
  row.dataset.seen = seen;
  replace(row.children[1], badge(schedule.state));
  text(row.children[2], rule(schedule));
  text(row.children[3], schedule.timezone);
  replace(row.children[4], ago(schedule.next_run_at));
  replace(row.children[5], ago(schedule.last_fire_at));
  text(row.children[6].firstElementChild, `${schedule.type}, ${destination(schedule)}`);
}

function said({ crowded, changes, fires }) {
  const busiest = [...crowded].slice(0, CROWDED_SHOWN).map(([at, count]) => `${hourMinute(at)} (${count})`).join(", ");
  return h("div", { class: "small soft" },
    h("p", {}, `${number(fires)} fires. `, crowded.size === 0 ? "No two schedules fire in the same minute" : `In ${number(crowded.size)} minutes several schedules fire together, most at ${busiest}`, " (those that fire every few minutes aside).", ` Times are those of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`),
    changes.map(({ zone, at, byMs }) => h("p", { class: "warn" }, `Clocks in ${zone} go ${byMs > 0 ? "ahead" : "back"} by ${Math.abs(byMs) / 60_000} minutes at ${exact(at)}.`)));
}

// The drawing of a day, and a choice of the day.
function day(schedulesOf, signal) {
  const place = h("div", {}, empty("Looking ahead…"));
  const input = h("input", { type: "date", "aria-label": "Day" });
  async function draw() {
    const from = input.value ? new Date(`${input.value}T00:00`).getTime() : Date.now();
    await orProblem(place, async () => {
      const rows = await collect(schedulesOf(), from, !input.value, signal);
      const drawn = drawing(rows, from, !input.value);
      replace(place, rows.length === 0 ? empty("No schedule is active.") : [drawn.node, said(drawn)]);
    });
  }
  input.addEventListener("change", draw);
  const node = h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "The next 24 hours"), h("div", { class: "actions" }, h("span", { class: "soft small" }, "or the day"), input, h("button", { type: "button", click: () => { input.value = ""; draw(); } }, "From now"))), place);
  return { node, draw };
}

export async function show({ root, query, navigate, signal }) {
  const filter = { state: query.get("state"), name: query.get("name"), type: query.get("type"), cursor: query.get("cursor"), limit: PAGE_COUNT, payload: false };
  const { node, body } = table(["Schedule", "State", "Rule", ["Zone", "wide"], "Next", ["Last", "wide"], ["What it does", "wide"]], { caption: "Schedules" });
  const foot = h("div", {});
  let page = null;
  let drawn = { what: "", at: 0 };
  // Anew when a schedule has changed, and every so often because time goes on.
  const keepDrawn = () => {
    const what = page.items.map(({ id, version, state }) => `${id} ${version} ${state}`).join();
    if (what === drawn.what && Date.now() - drawn.at < REDRAW_MS) return;
    drawn = { what, at: Date.now() };
    timeline.draw();
  };
  const timeline = day(() => page.items, signal);
  const state = h("select", { name: "state" }, ["", "active", "paused", "ended"].map((value) => h("option", { value, selected: value === (filter.state ?? "") }, value || "any")));
  const form = h("form", { class: "filters" }, field("State", state), field("Name", h("input", { name: "name", value: filter.name, autocomplete: "off" })), field("Type", h("input", { name: "type", value: filter.type, autocomplete: "off" })), h("button", { class: "primary" }, "Filter"), h("a", { class: "button", href: "/schedules" }, "Clear"));
  const addressWith = (changes) => `/schedules?${new URLSearchParams(Object.entries({ state: filter.state, name: filter.name, type: filter.type, ...changes }).filter(([, value]) => value))}`;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(addressWith(Object.fromEntries(new FormData(form))), { keepPlace: true });
  });
  const create = mayChange() && h("button", { type: "button", class: "primary", click: async () => {
    const made = await editSchedule(null, null);
    if (made) navigate(`/schedules/${encodeURIComponent(made.value.id)}`);
  } }, "New schedule");
  replace(root, head("Schedules", create), timeline.node, card(null, form), card(null, node, foot));
  await repeat(async () => {
    const first = page === null;
    page = await get("/v1/schedules", filter, signal);
    keyed(body, page.items, { key: ({ id }) => id, make: makeRow, update: updateRow });
    if (first) replace(foot, page.items.length === 0 ? empty("No schedule matches.") : null, pager({ next: page.next_cursor, isFirst: !filter.cursor, go: (cursor) => navigate(addressWith({ cursor })), shown: `${number(page.items.length)} shown; the drawing is of these` }));
    keepDrawn();
  }, EVERY_MS, signal);
}
