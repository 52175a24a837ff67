// Jobs, filtered: by state, type, queue, label and time. Counts of states are counters; lists go on by cursor.

import { firstMatches, get } from "/assets/api.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { actionButton } from "/assets/dialogs.js";
import { STATES, badge, card, destination, empty, field, head, jobLink, labels, number, pager, shortId, table } from "/assets/parts.js";
import { ago } from "/assets/time.js";

const EVERY_MS = 3_000;
const PAGE_COUNT = 50;

// The filter in the address, as the API wants it.
function filterOf(query) {
  const filter = {};
  for (const name of ["state", "type", "queue", "schedule", "from", "to"]) if (query.get(name)) filter[name] = query.get(name);
  for (const [name, value] of query) if (name.startsWith("label.")) filter[name] = value;
  return filter;
}

const localTime = (time) => (time ? new Date(Date.parse(time) - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "");

function labelText(query) {
  return [...query].filter(([name]) => name.startsWith("label.")).map(([name, value]) => `${name.slice(6)}=${value}`).join(" ");
}

// What the form says, as an address.
function addressOf(form) {
  const data = new FormData(form);
  const next = new URLSearchParams();
  const states = data.getAll("state");
  if (states.length > 0) next.set("state", states.join(","));
  for (const name of ["type", "queue", "schedule"]) if (data.get(name).trim()) next.set(name, data.get(name).trim());
  for (const name of ["from", "to"]) if (data.get(name)) next.set(name, new Date(data.get(name)).toISOString());
  for (const pair of data.get("labels").split(/\s+/).filter((part) => part.includes("="))) {
    const at = pair.indexOf("=");
    next.set(`label.${pair.slice(0, at)}`, pair.slice(at + 1));
  }
  const search = next.toString();
  return search ? `/jobs?${search}` : "/jobs";
}

function filterForm(query, navigate) {
  const chosen = (query.get("state") ?? "").split(",");
  const counts = new Map();
  const chips = STATES.map((state) => {
    const count = h("span", { class: "count" });
    counts.set(state, count);
    return h("label", { class: "chip" }, h("input", { type: "checkbox", name: "state", value: state, checked: chosen.includes(state) }), badge(state), count);
  });
  const input = (name, value, options) => h("input", { name, value, autocomplete: "off", spellcheck: "false", size: 14, ...options });
  const form = h("form", { class: "filters" },
    h("fieldset", { class: "chips", "aria-label": "States" }, chips),
    field("Type", input("type", query.get("type"))),
    field("Queue", input("queue", query.get("queue"))),
    field("Labels (key=value)", input("labels", labelText(query), { size: 18 })),
    field("Schedule", input("schedule", query.get("schedule"), { placeholder: "sch_…" })),
    field("Set for, from", input("from", localTime(query.get("from")), { type: "datetime-local" })),
    field("until", input("to", localTime(query.get("to")), { type: "datetime-local" })),
    h("button", { class: "primary", type: "submit" }, "Filter"),
    h("a", { class: "button", href: "/jobs" }, "Clear"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(addressOf(form), { keepPlace: true });
  });
  form.addEventListener("change", (event) => {
    if (event.target.name === "state") navigate(addressOf(form), { keepPlace: true });
  });
  return { form, showCounts: (all) => { for (const [state, node] of counts) text(node, all[state] === undefined ? "" : number(all[state])); } };
}

function makeRow(job) {
  return h("tr", { "data-row": true },
    h("td", { class: "fixed" }, jobLink(job.id, shortId(job.id))),
    h("td", { class: "fixed" }), h("td", {}, job.type), h("td", { class: "fixed" }),
    h("td", { class: "number" }), h("td", { class: "wide" }, h("span", { class: "excerpt" }, destination(job))),
    h("td", { class: "wide" }, labels(job.labels)), h("td", { class: "wide" }, h("span", { class: "excerpt soft" })));
}

function updateRow(row, job) {
  const seen = `${job.state} ${job.run_at} ${job.attempt} ${job.last_error}`;
  if (row.dataset.seen === seen) return;
  row.dataset.seen = seen;
  replace(row.children[1], badge(job.state));
  replace(row.children[3], ago(job.run_at));
  text(row.children[4], `${job.attempt}/${job.max_attempts}`);
  text(row.children[7].firstElementChild, job.last_error ?? job.reason ?? "");
}

// How many match, by looking at them as far as the server does so.
function countButton(filter, node) {
  return actionButton("Count", { title: "Count the jobs that match", work: async () => {
    const { count, complete } = await get("/v1/jobs/count", filter);
    text(node, complete ? `${number(count)} match` : `at least ${number(count)} match`);
  } });
}

export async function show({ root, query, navigate, signal }) {
  const filter = filterOf(query);
  const cursor = query.get("cursor");
  const { form, showCounts } = filterForm(query, navigate);
  const { node, body } = table(["Job", "State", "Type", "Set for", ["Attempts", "number"], ["Goes to", "wide"], ["Labels", "wide"], ["Last error", "wide"]], { caption: "Jobs" });
  const news = h("button", { type: "button", class: "hidden", click: () => navigate(location.pathname + location.search, { replaced: true, keepPlace: true }) }, "The list has changed: show it");
  const counted = h("span", { class: "soft small" });
  const foot = h("div", {}, empty("Looking…"));
  const go = (next) => {
    const address = new URLSearchParams(location.search);
    if (next === null) address.delete("cursor");
    else address.set("cursor", next);
    navigate(`/jobs?${address}`);
  };
  replace(root, head("Jobs", news, counted, countButton(filter, counted)), card(null, form), card(null, node, foot));
  let shown = null;
  await repeat(async () => {
    const [page, counts] = await Promise.all([firstMatches("/v1/jobs", { ...filter, cursor, limit: PAGE_COUNT }, signal), get("/v1/jobs/count", {}, signal)]);
    showCounts(counts.counts);
    if (shown === null) {
      shown = page.items.map(({ id }) => id);
      keyed(body, page.items, { key: ({ id }) => id, make: makeRow, update: updateRow });
      const said = page.items.length > 0 ? null : empty(page.next_cursor ? "None match in the stretch that was looked at; go on to the next page." : "No job matches.");
      replace(foot, said, pager({ next: page.next_cursor, isFirst: !cursor, go, shown: `${number(page.items.length)} shown, latest first` }));
      return;
    }
    // Rows stay where they are while somebody reads; what is new is shown when asked for.
    const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
    for (const job of page.items) if (rows.has(job.id)) updateRow(rows.get(job.id), job);
    news.classList.toggle("hidden", page.items.map(({ id }) => id).join() === shown.join());
  }, EVERY_MS, signal);
}
