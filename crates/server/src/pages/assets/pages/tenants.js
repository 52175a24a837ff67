// Tenants: their share, their limits, how much of them is used, and who was told to wait. An admin changes them.

import { actAs, change, currentTenant, get, getWhole, mayAdminister } from "/assets/api.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { actionButton, formDialog, toast } from "/assets/dialogs.js";
import { refresh, repeat } from "/assets/live.js";
import { card, empty, facts, field, head, meter, number, table } from "/assets/parts.js";

const EVERY_MS = 5_000;
const PAGE_COUNT = 100;

// The limits, as the API and as people call them.
const LIMITS = [
  ["submit_rate", "Submitted per second"],
  ["submit_burst", "Submitted at once"],
  ["waiting", "Waiting"],
  ["concurrency", "Running at a time"],
  ["queue_concurrency", "Running at a time in one queue"],
  ["rate_cap", "Started per second"],
  ["schedules", "Schedules"],
  ["min_interval", "Between two fires"],
  ["payload_bytes", "Bytes of a payload"],
  ["retention", "Finished jobs are kept"],
];
// What a tenant's jobs can be spread over.
const SUB_SHARDS = [1, 2, 4, 8, 16];
const DURATIONS = ["min_interval", "retention"];

function switchTo(name) {
  actAs(name);
  dispatchEvent(new CustomEvent("tidewheel:tenant"));
}

const plain = (value) => (typeof value === "number" ? number(value) : String(value));

function limitList(limits) {
  const set = LIMITS.filter(([name]) => (limits[name] ?? null) !== null);
  return set.length === 0 ? h("span", { class: "soft" }, "none set") : set.map(([name]) => [h("span", { class: "tag" }, `${name.replaceAll("_", " ")} ${plain(limits[name])}`), " "]);
}

// The form that changes what holds for a tenant; what is left empty has no limit.
async function edit(id) {
  const whole = await getWhole(`/v1/tenants/${encodeURIComponent(id)}`);
  const { weight, sub_shards: subShards, limits } = whole.json;
  const line = (name, value, options) => h("input", { name, value, autocomplete: "off", ...options });
  const counts = (name) => (DURATIONS.includes(name) ? { placeholder: "such as 30s or 7d" } : { type: "number", min: 0, step: 1, placeholder: "no limit" });
  const done = await formDialog({
    title: `Change the tenant ${id}`,
    body: [h("div", { class: "form-grid" }, field("Weight", line("weight", weight, { type: "number", min: 1, max: 1_000, step: 1, required: true })), field("Spread over shards", h("select", { name: "sub_shards" }, SUB_SHARDS.map((count) => h("option", { value: count, selected: count === subShards }, String(count))))), LIMITS.map(([name, said]) => field(said, line(name, limits[name], counts(name))))),
      h("p", { class: "soft small" }, "What is left empty has no limit, or the server's own. It holds at once.")],
    action: "Save",
    send: (data) => {
      const said = LIMITS.map(([name]) => [name, data.get(name).trim()]).filter(([, value]) => value !== "");
      const next = Object.fromEntries(said.map(([name, value]) => [name, DURATIONS.includes(name) ? value : Number(value)]));
      return change("PUT", `/v1/tenants/${encodeURIComponent(id)}`, { body: { weight: Number(data.get("weight")), sub_shards: Number(data.get("sub_shards")), limits: next }, etag: whole.etag });
    },
  });
  if (done) {
    toast("It holds from now on.");
    refresh();
  }
}

function makeRow({ id }) {
  const name = mayAdminister() ? h("button", { type: "button", class: "link", title: "Look at this tenant's jobs and schedules", click: () => switchTo(id) }, id) : id;
  return h("tr", { "data-row": true, "data-tenant": id }, h("td", {}, name), h("td", { class: "number" }), h("td", { class: "wide" }), h("td", { class: "number" }), h("td", { class: "number wide" }), h("td", { class: "number" }), h("td", {}), h("td", { class: "fixed" }, mayAdminister() && actionButton("Edit", { work: () => edit(id) })));
}

function updateRow(row, { weight, limits }, total, backlog) {
  text(row.children[1], number(weight));
  const share = Math.round((weight / total) * 100);
  replace(row.children[2], meter(weight, total));
  row.children[2].title = `${share} % while all have more to run than there is room for`;
  text(row.children[3], number(backlog?.waiting ?? 0));
  text(row.children[4], number(backlog?.running ?? 0));
  text(row.children[5], number(backlog?.refused ?? 0));
  row.children[5].className = backlog?.refused > 0 ? "number warn" : "number";
  const full = limits.waiting !== null && (backlog?.waiting ?? 0) >= limits.waiting;
  replace(row.children[6], full && h("strong", { class: "bad" }, "full "), limitList(limits));
}

function usage(view, limits) {
  const waiting = view.jobs.scheduled + view.jobs.retrying;
  const rows = [["Waiting", waiting, limits?.waiting], ["Running", view.jobs.running, limits?.concurrency]];
  return h("div", { class: "bars" }, rows.map(([name, used, limit]) => h("div", { class: "bar-row" }, h("span", {}, name), limit ? meter(used, limit, used >= limit ? "bad" : "") : h("span", { class: "soft small" }, `${number(used)}, without a limit`), h("span", { class: "number" }, limit ? `${number(used)} / ${number(limit)}` : ""))));
}

export async function show({ root, signal }) {
  const { node, body } = table(["Tenant", ["Weight", "number"], ["Share", "wide"], ["Waiting", "number"], ["Running", "number wide"], ["Refused", "number"], "Limits", ""], { caption: "Tenants" });
  const note = h("div", {});
  const own = h("div", {});
  const input = h("input", { name: "name", autocomplete: "off", spellcheck: "false", maxlength: 64 });
  const form = h("form", { class: "filters" }, field("Look at the tenant", input), h("button", { class: "primary" }, "Go"), h("button", { type: "button", click: () => { if (input.value.trim()) edit(input.value.trim()).catch((problem) => toast(problem.message, "bad")); } }, "Set its limits"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim()) switchTo(input.value.trim());
  });
  const title = h("h2", {}, `This tenant: ${currentTenant()}`);
  replace(root, head("Tenants"), mayAdminister() && card(null, form), h("section", { class: "card" }, title, own), card(mayAdminister() ? "Tenants" : null, note, node));
  await repeat(async () => {
    const [view, page, mine] = await Promise.all([get("/v1/overview", {}, signal), get("/v1/tenants", { limit: PAGE_COUNT }, signal), get(`/v1/tenants/${encodeURIComponent(currentTenant())}`, {}, signal)]);
    // Those with jobs come first, also where nothing is set for them.
    const backlogs = new Map((view.tenants ?? [{ id: currentTenant(), waiting: view.jobs.scheduled + view.jobs.retrying, running: view.jobs.running }]).map((backlog) => [backlog.id, backlog]));
    const known = new Map(page.items.map((tenant) => [tenant.id, tenant]));
    const unset = { weight: 1, limits: {} };
    const names = [...new Set([...backlogs.keys(), ...known.keys()])];
    const rows = names.map((id) => ({ ...unset, ...known.get(id), id })).map((row) => ({ ...row, limits: { waiting: null, ...row.limits } }));
    replace(own, usage(view, mine.limits), h("h3", {}, "Now"), facts([["Weight", mine.weight], ["Spread over shards", mine.sub_shards], ["Due and waiting", `${number(view.lanes.reduce((sum, lane) => sum + lane.depth, 0))} in ${number(view.lanes.length)} queues and targets`], ["Dead letters", number(view.jobs.dead)]]));
    replace(note, rows.length === 0 ? empty("No tenant is known.") : h("p", { class: "soft small" }, "Refused: submissions this node has turned away since it started, because of the tenant's rate or of how many wait.", page.next_cursor ? ` The first ${number(rows.length)} tenants are shown.` : ""));
    const total = rows.reduce((sum, { weight }) => sum + weight, 0);
    keyed(body, rows, { key: ({ id }) => id, make: makeRow, update: (row, tenant) => updateRow(row, tenant, total, backlogs.get(tenant.id)) });
  }, EVERY_MS, signal);
}
