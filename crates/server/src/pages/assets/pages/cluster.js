// The nodes, and which shards each has.

import { get } from "/assets/api.js";
import { h, replace, s } from "/assets/dom.js";
import { repeat } from "/assets/live.js";
import { badge, card, facts, head, millis, number, table } from "/assets/parts.js";
import { full } from "/assets/time.js";

const EVERY_MS = 3_000;
const ACROSS = 32;
const SIZE = 26;

// A square for each shard, coloured by node; its title says who has it and since which epoch.
function shardMap(cluster) {
  const owners = new Array(cluster.shards).fill(null);
  cluster.nodes.forEach((node, index) => {
    for (const lease of node.leases) for (let shard = lease.first_shard; shard <= lease.last_shard; shard += 1) owners[shard] = { node, index, epoch: lease.epoch };
  });
  const kinds = ["", "other", "third"];
  const squares = owners.map((owner, shard) => s("rect", { class: `shard ${owner === null ? "none" : kinds[owner.index % kinds.length]}`, x: (shard % ACROSS) * SIZE + 1, y: Math.floor(shard / ACROSS) * SIZE + 1, width: SIZE - 3, height: SIZE - 3, rx: 3 }, s("title", {}, owner === null ? `shard ${shard}: nobody's` : `shard ${shard}: ${owner.node.id}, epoch ${owner.epoch}`)));
  const orphans = owners.filter((owner) => owner === null).length;
  return [s("svg", { class: "fires", viewBox: `0 0 ${ACROSS * SIZE} ${Math.ceil(cluster.shards / ACROSS) * SIZE}`, role: "img", "aria-label": `${cluster.shards} shards, ${orphans} without a node` }, squares),
    h("p", { class: orphans > 0 ? "bad" : "soft small" }, orphans > 0 ? `${number(orphans)} of ${number(cluster.shards)} shards belong to nobody: their jobs do not start.` : `All ${number(cluster.shards)} shards have a node.`)];
}

const leases = (node) => node.leases.map((lease) => [h("span", { class: "tag" }, `${lease.first_shard === lease.last_shard ? lease.first_shard : `${lease.first_shard}–${lease.last_shard}`} epoch ${lease.epoch}`), " "]);

export async function show({ root, signal }) {
  const facts_ = h("div", {});
  const map = h("div", {});
  const { node, body } = table(["Node", "State", ["Shards", "number"], "Leases", ["Behind", "number"], ["Version", "wide"], ["Started", "wide"], ["tz database", "wide"]], { caption: "Nodes" });
  replace(root, head("Cluster"), card(null, facts_), card("Shards", map), card("Nodes", node));
  let seen = "";
  await repeat(async () => {
    const cluster = await get("/v1/cluster", {}, signal);
    if (JSON.stringify(cluster) === seen) return;
    seen = JSON.stringify(cluster);
    replace(facts_, facts([["Store", cluster.store], ["Nodes", number(cluster.nodes.length)], ["Shards", number(cluster.shards)], ["Oldest due job waits for room since", cluster.lag_ms === 0 ? "none waits" : millis(cluster.lag_ms)], ["Time zones", `${cluster.tz_database.version}, ${cluster.tz_database.source}`]]));
    replace(map, shardMap(cluster));
    replace(body, cluster.nodes.map((member) => h("tr", { "data-row": true }, h("td", {}, member.id, member.address ? h("div", { class: "soft small" }, member.address) : null), h("td", {}, badge(member.state)), h("td", { class: "number" }, number(member.shards)), h("td", {}, leases(member)), h("td", { class: "number" }, millis(member.lag_ms)), h("td", { class: "wide" }, member.version), h("td", { class: "wide" }, full(member.started_at)), h("td", { class: "wide" }, member.tz_database?.version ?? "–"))));
  }, EVERY_MS, signal);
}
