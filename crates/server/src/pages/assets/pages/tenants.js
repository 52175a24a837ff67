// Tenants: their share, their limits, how much of them is used. What the server does not tell is left out.

import { actAs, currentTenant, get, getIfServed } from "/assets/api.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { card, empty, facts, field, head, meter, number, table } from "/assets/parts.js";

const EVERY_MS = 5_000;
const PAGE_COUNT = 100;

function switchTo(name) {
  actAs(name);
  dispatchEvent(new CustomEvent("tidewheel:tenant"));
}

const plain = (value) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value) : String(value));
const words = (name) => name.replaceAll("_", " ");

function limitList(limits) {
  const rows = Object.entries(limits ?? {}).filter(([, value]) => value !== null);
  return rows.length === 0 ? h("span", { class: "soft" }, "none set") : rows.map(([name, value]) => [h("span", { class: "tag" }, `${words(name)} ${plain(value)}`), " "]);
}

function makeRow(tenant) {
  const name = tenant.id ?? tenant.name;
  const rest = Object.entries(tenant).filter(([key]) => !["id", "name", "weight", "limits"].includes(key));
  return h("tr", { "data-row": true }, h("td", {}, h("button", { type: "button", class: "link", title: "Look at this tenant's jobs and schedules", click: () => switchTo(name) }, name)), h("td", { class: "number" }), h("td", { class: "wide" }), h("td", {}), h("td", { class: "wide" }, rest.map(([key, value]) => [h("span", { class: "tag" }, `${words(key)} ${plain(value)}`), " "])));
}

function usage(view, limits) {
  const waiting = view.jobs.scheduled + view.jobs.retrying;
  const rows = [["Waiting", waiting, limits?.waiting], ["Running", view.jobs.running, limits?.concurrency]];
  return h("div", { class: "bars" }, rows.map(([name, used, limit]) => h("div", { class: "bar-row" }, h("span", {}, name), limit ? meter(used, limit, used >= limit ? "bad" : "") : h("span", { class: "soft small" }, `${number(used)}, without a limit`), h("span", { class: "number" }, limit ? `${number(used)} / ${number(limit)}` : ""))));
}

export async function show({ root, signal }) {
  const { node, body } = table(["Tenant", ["Weight", "number"], ["Share", "wide"], "Limits", ["More", "wide"]], { caption: "Tenants" });
  const note = h("div", {});
  const own = h("div", {});
  const input = h("input", { name: "name", autocomplete: "off", spellcheck: "false", maxlength: 64 });
  const form = h("form", { class: "filters" }, field("Look at the tenant", input), h("button", { class: "primary" }, "Go"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim()) switchTo(input.value.trim());
  });
  const title = h("h2", {}, `This tenant: ${currentTenant()}`);
  replace(root, head("Tenants"), card(null, form), h("section", { class: "card" }, title, own), card("All tenants", note, node));
  await repeat(async () => {
    const [view, page] = await Promise.all([get("/v1/overview", {}, signal), getIfServed("/v1/tenants", { limit: PAGE_COUNT }, signal)]);
    const tenants = page?.items ?? [];
    const mine = tenants.find((tenant) => (tenant.id ?? tenant.name) === currentTenant());
    replace(own, usage(view, mine?.limits), h("h3", {}, "Now"), facts([["Weight", mine?.weight], ["Due and waiting", `${number(view.lanes.reduce((sum, lane) => sum + lane.depth, 0))} in ${number(view.lanes.length)} queues and targets`], ["Dead letters", number(view.jobs.dead)]]));
    node.classList.toggle("hidden", tenants.length === 0);
    replace(note, page === null ? h("p", { class: "soft" }, "This server keeps no list of tenants, or does not show it to you: every tenant has the same share and no limits of its own.") : tenants.length === 0 ? empty("No tenant has settings of its own.") : page.next_cursor ? h("p", { class: "soft small" }, `The first ${number(tenants.length)} are shown.`) : null);
    const total = tenants.reduce((sum, tenant) => sum + (tenant.weight ?? 1), 0);
    keyed(body, tenants, {
      key: (tenant) => tenant.id ?? tenant.name,
      make: makeRow,
      update: (row, tenant) => {
        text(row.children[1], number(tenant.weight ?? 1));
        replace(row.children[2], meter(tenant.weight ?? 1, total));
        replace(row.children[3], limitList(tenant.limits));
      },
    });
  }, EVERY_MS, signal);
}
