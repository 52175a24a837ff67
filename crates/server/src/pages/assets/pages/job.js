// One job: why it has not run, or what came of it; its life as a timeline; its payload and result; what can be done.

import { change, get, getWhole, mayChange, mayManage } from "/assets/api.js";
import { h, replace } from "/assets/dom.js";
import { actionButton, confirm } from "/assets/dialogs.js";
import { fieldText, indented } from "/assets/json-text.js";
import { refresh, repeat } from "/assets/live.js";
import { badge, card, destination, facts, head, labels, scheduleLink, table } from "/assets/parts.js";
import { ago, full, span } from "/assets/time.js";
import { events, timeline } from "/assets/pages/job-timeline.js";

const EVERY_MS = 2_000;
const ENDED = ["succeeded", "dead", "cancelled", "skipped", "expired"];

function actions(id, state) {
  if (!mayChange()) return [];
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const act = (label, verb, said) => actionButton(label, { said, work: async () => { await change("POST", `${path}/${verb}`); refresh(); } });
  const waits = ["scheduled", "ready", "retrying"].includes(state);
  return [
    waits && act("Run now", "run", "It starts now."),
    ENDED.includes(state) && act("Retry", "retry", "It runs again."),
    (waits || state === "running") && actionButton("Cancel", { kind: "danger", work: () => confirm({ title: "Cancel this job?", text: "It will not start. If it is running, what it reports is refused.", action: "Cancel the job", danger: true, send: async () => { await change("POST", `${path}/cancel`); refresh(); } }) }),
    state === "dead" && mayManage() && h("a", { class: "button", href: `/dead-letters?id=${encodeURIComponent(id)}` }, "Edit and replay"),
  ];
}

function explanation(why) {
  return [h("p", {}, why.detail), facts([
    ["Waits for", why.waits_for],
    ["Expected to start", why.waits_for && why.waits_for !== "outcome" ? full(why.expected_start) : null],
    ["Failures", `${why.failures} of ${why.max_attempts}`],
  ])];
}

function attemptTable(attempts) {
  const { node, body } = table([["Attempt", "number"], "How it ended", "By", "Began", ["Took", "number"], "What was said"], { caption: "Attempts" });
  replace(body, attempts.map((attempt) => h("tr", { "data-row": true },
    h("td", { class: "number" }, attempt.attempt), h("td", { class: "fixed" }, badge(attempt.state), attempt.status_code ? ` ${attempt.status_code}` : ""), h("td", {}, attempt.worker),
    h("td", { class: "fixed" }, ago(attempt.started_at)), h("td", { class: "number" }, attempt.finished_at ? span(Date.parse(attempt.finished_at) - Date.parse(attempt.started_at)) : "–"),
    h("td", {}, h("span", { class: "mono" }, attempt.detail)))));
  return attempts.length === 0 ? h("p", { class: "soft" }, "It has not been tried yet.") : node;
}

function history(list) {
  return h("details", {}, h("summary", {}, "Every step"), h("ol", { class: "small" }, list.map((event) => h("li", {}, badge(event.state), ` ${event.name}: `, full(event.at), event.detail ? h("span", { class: "mono soft" }, ` ${event.detail}`) : ""))));
}

function details(job) {
  const { retry } = job;
  return facts([
    ["Type", job.type], ["Goes to", destination(job)], ["Priority", job.priority], ["Set for", full(job.run_at)], ["Taken in", full(job.created_at)],
    ["Schedule", job.schedule_id && scheduleLink(job.schedule_id)], ["Makes up for a missed time", job.catch_up ? "yes" : null],
    ["Attempts", `${job.attempt} of ${job.max_attempts}`], ["Retry", retry && `${retry.policy}, from ${retry.base}, times ${retry.multiplier}, up to ${retry.max}`], ["Timeout", job.timeout],
    ["Expires", job.expires_at && full(job.expires_at)], ["Worker", job.worker], ["Lease until", job.lease_until && full(job.lease_until)],
    ["Ended", job.finished_at && full(job.finished_at)], ["Why", job.reason], ["Idempotency key", h("span", { class: "mono" }, job.idempotency_key)],
    ["Labels", Object.keys(job.labels ?? {}).length > 0 ? labels(job.labels) : null], ["Tenant", job.tenant],
  ]);
}

export async function show({ root, id, signal, titled }) {
  titled(id);
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const parts = Object.fromEntries(["head", "why", "line", "attempts", "details", "result"].map((name) => [name, h("div", {})]));
  const payload = h("pre", { tabindex: 0 });
  replace(root, parts.head, h("div", { class: "grid" }, card("Why", parts.why), card("Details", parts.details)), card("Timeline", parts.line), card("Attempts", parts.attempts),
    h("div", { class: "grid" }, card("Payload", payload), card("Result and last error", parts.result)));
  let seen = "";
  await repeat(async () => {
    const [whole, attempts, why] = await Promise.all([getWhole(path, {}, signal), get(`${path}/attempts`, {}, signal), get(`${path}/explain`, {}, signal)]);
    const job = whole.json;
    replace(parts.why, explanation(why));
    const now = `${whole.text} ${JSON.stringify(attempts)} ${ENDED.includes(job.state) ? "" : Math.floor(Date.now() / 10_000)}`;
    if (now === seen) return;
    seen = now;
    const open = parts.line.querySelector("details")?.open ?? false;
    replace(parts.head, head(h("span", {}, job.type, " ", h("span", { class: "mono soft small" }, id)), badge(job.state), actions(id, job.state)));
    replace(parts.details, details(job));
    replace(parts.line, timeline(job, attempts.items), history(events(job, attempts.items)));
    parts.line.querySelector("details").open = open;
    replace(parts.attempts, attemptTable(attempts.items));
    replace(payload, indented(fieldText(whole.text, "payload") ?? "null"));
    const result = fieldText(whole.text, "result") ?? "null";
    const progress = fieldText(whole.text, "progress") ?? "null";
    replace(parts.result, job.last_error && [h("h3", {}, "Last error"), h("pre", { tabindex: 0 }, job.last_error)], [["Result", result], ["Progress", progress]].filter(([, value]) => value !== "null").map(([name, value]) => [h("h3", {}, name), h("pre", { tabindex: 0 }, typeof job[name.toLowerCase()] === "string" ? job[name.toLowerCase()] : indented(value))]),
      !job.last_error && result === "null" && h("p", { class: "soft" }, "Nothing was handed back."));
  }, EVERY_MS, signal);
}
