// What waits where, and who takes it.

import { get } from "/assets/api.js";
import { h, keyed, replace, text } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { badge, card, empty, head, meter, number, table } from "/assets/parts.js";
import { ago } from "/assets/time.js";

const EVERY_MS = 2_000;
const WORKERS_SHOWN_MAX = 1_000;

const REASONS = {
  no_worker: "no worker asks for it",
  workers_busy: "its workers have no room",
  host_limit: "as many pushes to this host as may be are under way",
  push_limit: "as many pushes as may be are under way",
};

const heldUp = (reason) => (reason === null ? "–" : (REASONS[reason] ?? reason));

// Puts a time into a cell that is not there yet.
function showAgo(cell, time) {
  if (cell.dataset.time === String(time)) return;
  cell.dataset.time = String(time);
  replace(cell, ago(time));
}

// Lanes with something due.
export function laneTable() {
  const { node, body } = table(["Where", ["Due", "number"], "Longest", "Held up by"], { caption: "Due jobs by queue and target" });
  const note = h("div", {});
  return {
    node: h("div", {}, node, note),
    update(lanes, said) {
      node.classList.toggle("hidden", lanes.length === 0);
      replace(note, said);
      keyed(body, lanes, {
        key: (lane) => `${lane.kind} ${lane.name}`,
        make: (lane) => h("tr", { "data-row": true }, h("td", {}, lane.kind === "queue" ? h("a", { href: `/jobs?state=ready&queue=${encodeURIComponent(lane.name)}` }, lane.name) : lane.name), h("td", { class: "number" }), h("td", { class: "fixed" }), h("td", {})),
        update(row, lane) {
          text(row.children[1], `${number(lane.depth)}${lane.more ? "+" : ""}`);
          showAgo(row.children[2], lane.oldest_at);
          text(row.children[3], heldUp(lane.waits_for));
        },
      });
    },
  };
}

function workerTable() {
  const { node, body } = table(["Worker", "State", "Queues", ["Types", "wide"], ["Works on", "number"], ["Room for", "number"], ["Use", "wide"], "Heard", ["Since", "wide"]], { caption: "Connected workers" });
  const said = (worker) => (!worker.connected ? "lost" : worker.draining ? "draining" : "connected");
  return {
    node,
    update(workers) {
      node.classList.toggle("hidden", workers.length === 0);
      keyed(body, workers, {
        key: (worker) => worker.id,
        make: (worker) => h("tr", { "data-row": true }, h("td", { title: worker.id }, worker.name), h("td", {}), h("td", {}, worker.queues.join(", ")), h("td", { class: "wide" }, worker.types.length === 0 ? "all" : worker.types.join(", ")), h("td", { class: "number" }), h("td", { class: "number" }), h("td", { class: "wide" }), h("td", { class: "fixed" }), h("td", { class: "fixed wide" }, ago(worker.connected_at))),
        update(row, worker) {
          replace(row.children[1], badge(said(worker)));
          text(row.children[4], number(worker.in_flight));
          text(row.children[5], number(worker.credits));
          replace(row.children[6], meter(worker.in_flight, worker.in_flight + worker.credits));
          showAgo(row.children[7], worker.last_heard_at);
        },
      });
    },
  };
}

// What can be said of each queue: from what waits and from who asks.
export function queuesOf(lanes, workers) {
  const queues = new Map();
  const of = (name) => queues.get(name) ?? queues.set(name, { name, depth: 0, more: false, oldest: null, reason: null, workers: 0, inFlight: 0, credits: 0 }).get(name);
  for (const lane of lanes.filter(({ kind }) => kind === "queue")) Object.assign(of(lane.name), { depth: lane.depth, more: lane.more, oldest: lane.oldest_at, reason: lane.waits_for });
  for (const worker of workers.filter(({ connected }) => connected)) {
    for (const name of worker.queues) {
      const queue = of(name);
      queue.workers += 1;
      queue.inFlight += worker.in_flight;
      queue.credits += worker.credits;
    }
  }
  return [...queues.values()].sort((a, b) => b.depth - a.depth || (a.name < b.name ? -1 : 1));
}

function queueTable() {
  const { node, body } = table(["Queue", ["Due", "number"], ["Workers", "number"], ["Work on", "number"], ["Room for", "number"], "Longest", "Held up by"], { caption: "Queues" });
  return {
    node,
    update(queues) {
      node.classList.toggle("hidden", queues.length === 0);
      keyed(body, queues, {
        key: (queue) => queue.name,
        make: (queue) => h("tr", { "data-row": true }, h("td", {}, h("a", { href: `/jobs?queue=${encodeURIComponent(queue.name)}` }, queue.name)), [1, 2, 3, 4].map(() => h("td", { class: "number" })), h("td", { class: "fixed" }), h("td", {})),
        update(row, queue) {
          [`${number(queue.depth)}${queue.more ? "+" : ""}`, number(queue.workers), number(queue.inFlight), number(queue.credits)].forEach((shown, index) => text(row.children[index + 1], shown));
          showAgo(row.children[5], queue.oldest);
          text(row.children[6], heldUp(queue.reason));
          row.children[2].className = queue.depth > 0 && queue.workers === 0 ? "number warn" : "number";
        },
      });
    },
  };
}

export async function show({ root, signal }) {
  const queues = queueTable();
  const lanes = laneTable();
  const workers = workerTable();
  const noQueues = h("div", {});
  const noWorkers = h("div", {});
  replace(root, head("Queues and workers"), card("Queues", h("p", { class: "soft small" }, "Queues with jobs that are due or with connected workers. Those who pull over HTTP are not connected."), queues.node, noQueues),
    card("Push targets", lanes.node), card("Workers", workers.node, noWorkers));
  await repeat(async () => {
    const [view, page] = await Promise.all([get("/v1/overview", {}, signal), get("/v1/workers", { limit: WORKERS_SHOWN_MAX }, signal)]);
    const all = queuesOf(view.lanes, page.items);
    queues.update(all);
    replace(noQueues, all.length === 0 ? empty("Nothing is due, and no worker is connected.") : null);
    const targets = view.lanes.filter(({ kind }) => kind === "push");
    lanes.update(targets, targets.length === 0 ? empty("Nothing waits to be pushed.") : null);
    workers.update(page.items);
    const more = page.next_cursor !== null ? h("p", { class: "soft small" }, `The first ${number(page.items.length)} are shown.`) : null;
    replace(noWorkers, page.items.length === 0 ? empty("No worker is connected.") : more);
  }, EVERY_MS, signal);
}
