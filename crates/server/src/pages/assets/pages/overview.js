// Is it healthy? How late jobs start, how many come and go, what waits, what was given up.

import { get, mayAdminister } from "/assets/api.js";
import { lines } from "/assets/charts.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { badge, card, empty, head, meter, millis, number, perSecond } from "/assets/parts.js";
import { span } from "/assets/time.js";
import { laneTable } from "/assets/pages/queues.js";

const EVERY_MS = 2_000;
const LAG_WARN_MS = 1_000;
const BACKLOG_WARN_MS = 5_000;
const CONCERNS_SHOWN = 3;
const TENANTS_SHOWN = 10;
const STORED = ["scheduled", "running", "retrying", "succeeded", "dead", "cancelled", "skipped", "expired"];

function tile(name, href) {
  const value = h("div", { class: "value" }, "–");
  const note = h("div", { class: "note" });
  const node = h(href ? "a" : "div", { class: "tile", href }, h("div", { class: "name" }, name), value, note);
  return { node, set: (shown, said) => { text(value, shown); text(note, said); } };
}

// What somebody should look at, worst first; no more than there is always room for.
export function concerns(view) {
  const found = [];
  const lane = view.lanes.find(({ waits_for }) => waits_for === "no_worker");
  if (view.backlog_age_ms > BACKLOG_WARN_MS) found.push(["failed", `Due work has waited ${span(view.backlog_age_ms)} for room in memory: jobs come faster than they are done.`]);
  if (view.lag.p99_ms !== null && view.lag.p99_ms > LAG_WARN_MS) found.push(["failed", `One job in a hundred starts more than ${millis(view.lag.p99_ms)} late.`]);
  if (lane) found.push(["warned", `No worker asks for jobs of the queue ${lane.name}; ${number(lane.depth)}${lane.more ? " or more" : ""} are due.`]);
  if (view.rates.failed > view.rates.succeeded && view.rates.failed > 0.05) found.push(["warned", "More attempts fail than succeed."]);
  if (view.jobs.dead > 0) found.push(["warned", `${number(view.jobs.dead)} dead ${view.jobs.dead === 1 ? "letter waits" : "letters wait"} to be replayed or discarded.`]);
  return found.slice(0, CONCERNS_SHOWN);
}

function showHealth(node, view) {
  const found = concerns(view);
  node.className = `card health ${found[0]?.[0] ?? ""}`;
  const said = found.length === 0 ? ["All is well: jobs start on time, and nothing waits to be looked at."] : found.map(([, sentence]) => sentence);
  if (node.dataset.said === said.join("\n")) return;
  node.dataset.said = said.join("\n");
  replace(node, said.map((sentence) => h("p", {}, sentence)));
}

function charts() {
  const parts = {
    lag: lines({ label: "How late jobs started, over the last 15 minutes", series: [{ name: "p50" }, { name: "p99" }], shown: millis }),
    rates: lines({ label: "Jobs per second, over the last 15 minutes", series: [{ name: "submitted" }, { name: "started" }, { name: "succeeded" }, { name: "failed" }], shown: perSecond }),
    backlog: lines({ label: "Jobs waiting and running, over the last 15 minutes", series: [{ name: "waiting" }, { name: "running" }], shown: (value) => number(Math.round(value)) }),
    dead: lines({ label: "Dead letters, over the last 15 minutes", series: [{ name: "dead letters" }], shown: (value) => number(Math.round(value)) }),
  };
  const of = (history, name) => history.map((sample) => [Date.parse(sample.at), sample[name]]);
  return {
    node: h("div", { class: "grid" }, card("Lag of the server", parts.lag.node), card("Throughput of the server, per second", parts.rates.node), card("Backlog of the server", parts.backlog.node), card("Dead letters of the server", parts.dead.node)),
    update({ history }) {
      parts.lag.update([of(history, "lag_p50_ms"), of(history, "lag_p99_ms")]);
      parts.rates.update(["submitted", "started", "succeeded", "failed"].map((name) => of(history, name)));
      parts.backlog.update([of(history, "waiting"), of(history, "running")]);
      parts.dead.update([of(history, "dead")]);
    },
  };
}

function stateBars() {
  const node = h("div", { class: "bars" });
  return {
    node,
    update(jobs) {
      const most = Math.max(...STORED.map((state) => jobs[state] ?? 0), 1);
      keyed(node, STORED, {
        key: (state) => state,
        make: (state) => h("a", { class: "bar-row", href: `/jobs?state=${state}` }, badge(state), h("span", {}), h("span", { class: "number" })),
        update: (row, state) => { replace(row.children[1], meter(jobs[state] ?? 0, most, state === "dead" ? "bad" : "")); text(row.children[2], number(jobs[state] ?? 0)); },
      });
    },
  };
}

// Who has the most waiting: what an admin asks when somebody floods the server.
function tenantBars() {
  const node = h("div", { class: "bars" });
  return {
    node,
    update(tenants) {
      const most = Math.max(...tenants.map(({ waiting }) => waiting), 1);
      keyed(node, tenants.slice(0, TENANTS_SHOWN), {
        key: ({ id }) => id,
        make: ({ id }) => h("div", { class: "bar-row" }, h("span", { class: "excerpt" }, id), h("span", {}), h("span", { class: "number" })),
        update: (row, { waiting, running, dead, refused }) => {
          replace(row.children[1], meter(waiting, most));
          text(row.children[2], number(waiting));
          row.title = `${number(waiting)} wait, ${number(running)} run, ${number(dead)} are dead letters, ${number(refused)} submissions were refused here`;
        },
      });
    },
  };
}

export async function show({ root, signal }) {
  const tiles = { p50: tile("Lag, p50"), p99: tile("Lag, p99"), done: tile("Done per second"), waiting: tile("Waiting", "/jobs?state=scheduled"), running: tile("Running", "/jobs?state=running"), dead: tile("Dead letters", "/dead-letters") };
  const health = h("section", { class: "card health", role: "status" });
  const drawn = charts();
  const bars = stateBars();
  const lanes = laneTable();
  const tenants = tenantBars();
  replace(root, head("Overview"), health, h("div", { class: "tiles" }, Object.values(tiles).map(({ node }) => node)), drawn.node,
    h("div", { class: "grid" }, card("Jobs by state", bars.node), card("Due and waiting, by queue and target", lanes.node)),
    mayAdminister() && h("section", { class: "card", "data-part": "tenants" }, h("h2", {}, "Waiting, by tenant"), tenants.node));
  await repeat(async () => {
    const view = await get("/v1/overview", {}, signal);
    showHealth(health, view);
    tiles.p50.set(millis(view.lag.p50_ms), `p95 ${millis(view.lag.p95_ms)} (${view.lag.window})`);
    tiles.p99.set(millis(view.lag.p99_ms), `p99.9 ${millis(view.lag.p999_ms)}`);
    tiles.done.set(perSecond(view.rates.succeeded), `${perSecond(view.rates.submitted)} in, ${perSecond(view.rates.failed)} failed`);
    tiles.waiting.set(number(view.jobs.scheduled + view.jobs.retrying), `${number(view.jobs.retrying)} retrying`);
    tiles.running.set(number(view.jobs.running), `${number(view.memory.leases)} hold a lease here`);
    tiles.dead.set(number(view.jobs.dead), view.jobs.dead === 0 ? "none" : "see why");
    drawn.update(view);
    bars.update(view.jobs);
    tenants.update(view.tenants ?? []);
    lanes.update(view.lanes, view.lanes.length === 0 ? empty("Nothing is due that has not started.") : null);
  }, EVERY_MS, signal);
}
