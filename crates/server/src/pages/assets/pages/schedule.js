// One schedule: its rule, when it fires next, what became of each time, and what can be done.

import { change, get, getWhole, mayChange } from "/assets/api.js";
import { h, keyed, replace } from "/assets/dom.js";
import { actionButton, confirm, toast } from "/assets/dialogs.js";
import { fieldText, indented } from "/assets/json-text.js";
import { refresh, repeat } from "/assets/live.js";
import { badge, card, destination, empty, facts, head, jobLink, labels, number, pager, shortId, table } from "/assets/parts.js";
import { ago, clockChanges, exact, full, inZone } from "/assets/time.js";
import { collect, drawing } from "/assets/pages/fires.js";
import { editSchedule } from "/assets/pages/schedule-form.js";

const EVERY_MS = 3_000;
const NEXT_COUNT = 12;
const FIRINGS_COUNT = 25;
const YEAR_MS = 366 * 86_400_000;

function actions(schedule, version, navigate) {
  if (!mayChange()) return [];
  const path = `/v1/schedules/${encodeURIComponent(schedule.id)}`;
  const act = (label, verb, said) => actionButton(label, { said, work: async () => { await change("POST", `${path}/${verb}`); refresh(); } });
  return [
    actionButton("Trigger", { title: "Run its job now", work: async () => {
      const { job_id } = await change("POST", `${path}/trigger`);
      toast(`Job ${job_id} runs now.`);
      refresh();
    } }),
    schedule.state === "active" && act("Pause", "pause", "It is paused."),
    schedule.state === "paused" && act("Resume", "resume", "It goes on."),
    actionButton("Edit", { work: async () => { if (await editSchedule(schedule, version)) refresh(); } }),
    actionButton("Delete", { kind: "danger", work: async () => {
      const done = await confirm({ title: "Delete this schedule?", text: "Its ledger goes with it. Jobs that have started go on.", action: "Delete the schedule", danger: true, send: () => change("DELETE", path) });
      if (done) navigate("/schedules");
    } }),
  ];
}

function details(schedule, payload) {
  const { exclude } = schedule;
  return facts([
    ["Rule", h("span", { class: "mono" }, schedule.cron_expr ?? `every ${schedule.every}`)], ["Zone", schedule.timezone],
    ["Next", full(schedule.next_run_at)], ["Last", full(schedule.last_fire_at)], ["Window", schedule.window],
    ["Clocks moved", schedule.dst && `skipped times: ${schedule.dst.gap}; repeated times: ${schedule.dst.fold}`],
    ["Missed times", `${schedule.misfire}${schedule.misfire_cap ? `, at most ${schedule.misfire_cap}` : ""}, after ${schedule.misfire_grace}`], ["While one runs", schedule.overlap],
    ["Not on", exclude && JSON.stringify(exclude)], ["From", schedule.start_at && full(schedule.start_at)], ["Until", schedule.end_at && full(schedule.end_at)],
    ["Type", schedule.type], ["Goes to", destination(schedule)], ["Priority", schedule.priority], ["Labels", Object.keys(schedule.labels ?? {}).length > 0 ? labels(schedule.labels) : null],
    ["Note", schedule.note], ["Id", h("span", { class: "mono" }, schedule.id)], ["Version", schedule.version], ["Payload", payload !== "null" && h("pre", { tabindex: 0 }, indented(payload))],
  ]);
}

function nextList(fires, zone) {
  const changes = clockChanges(zone, Date.now(), Date.now() + YEAR_MS);
  const moved = (time) => changes.some(({ at }) => Math.abs(at - Date.parse(time)) < 12 * 3_600_000);
  const { node, body } = table(["In its zone", ["UTC", "wide"], ["In", "number"], ""], { caption: "Next fires" });
  replace(body, fires.map((fire) => h("tr", { "data-row": true }, h("td", { class: "fixed" }, inZone(fire.run_at, zone)), h("td", { class: "fixed wide mono" }, fire.run_at.slice(5, 19).replace("T", " ")), h("td", { class: "number" }, ago(fire.run_at)), h("td", { class: "fixed" }, fire.note && h("strong", { class: "warn" }, fire.note), !fire.note && moved(fire.run_at) && h("span", { class: "warn" }, "DST day")))));
  const said = changes.slice(0, 2).map(({ at, byMs }) => h("p", { class: "small soft" }, `Clocks in ${zone} are moved by ${byMs / 60_000} minutes at ${exact(at)}.`));
  return [fires.length === 0 ? empty("It does not fire.") : node, said];
}

function ledger(id, signal) {
  const { node, body } = table(["Time", "What became of it", "Job", ["Lag", "number"], ["Attempts", "number wide"], ["Decided", "wide"]], { caption: "Ledger" });
  const foot = h("div", {});
  let cursor = null;
  async function load() {
    const page = await get(`/v1/schedules/${encodeURIComponent(id)}/firings`, { limit: FIRINGS_COUNT, cursor }, signal);
    keyed(body, page.items, {
      key: (firing) => `${firing.fire_at} ${firing.outcome} ${firing.job_id} ${firing.state}`,
      make: (firing) => h("tr", { "data-row": true }, h("td", { class: "fixed", title: firing.fire_at }, ago(firing.fire_at)), h("td", {}, badge(firing.outcome), firing.reason ? ` ${firing.reason}` : "", firing.catch_up ? " (made up for)" : "", firing.coalesced_into ? [" into ", ago(firing.coalesced_into)] : ""),
        h("td", { class: "fixed" }, firing.job_id ? [jobLink(firing.job_id, shortId(firing.job_id)), " ", firing.state && badge(firing.state)] : "–"), h("td", { class: "number" }, firing.lag ?? "–"), h("td", { class: "number wide" }, firing.attempts ?? "–"), h("td", { class: "fixed wide" }, ago(firing.decided_at))),
    });
    replace(foot, page.items.length === 0 ? empty("It has not fired yet.") : null, pager({ next: page.next_cursor, isFirst: cursor === null, go: (next) => { cursor = next; load(); }, shown: `${number(page.items.length)} shown, newest first` }));
  }
  return { node: h("div", {}, node, foot), load };
}

export async function show({ root, id, signal, navigate, titled }) {
  const path = `/v1/schedules/${encodeURIComponent(id)}`;
  const parts = Object.fromEntries(["head", "details", "next", "day"].map((name) => [name, h("div", {})]));
  const firings = ledger(id, signal);
  replace(root, parts.head, h("div", { class: "grid" }, card("Details", parts.details), card("Next fires", parts.next)), card("The next 24 hours", parts.day), card("Ledger", firings.node));
  let seen = "";
  await repeat(async () => {
    const [whole] = await Promise.all([getWhole(path, {}, signal), firings.load()]);
    if (whole.text === seen) return;
    seen = whole.text;
    const schedule = whole.json;
    const payloadText = fieldText(whole.text, "payload") ?? "null";
    titled(schedule.name ?? id);
    replace(parts.head, head(schedule.name ?? id, badge(schedule.state), actions(schedule, { etag: whole.etag, payloadText }, navigate)));
    replace(parts.details, details(schedule, payloadText));
    const { fires } = await get(`${path}/next`, { count: NEXT_COUNT }, signal);
    replace(parts.next, nextList(fires, schedule.timezone));
    const rows = await collect([schedule], Date.now(), true, signal);
    replace(parts.day, rows.length === 0 ? empty("It does not fire.") : drawing(rows, Date.now(), true).node);
  }, EVERY_MS, signal);
}
