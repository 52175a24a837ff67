// Dead letters, grouped by what went wrong: replayed or discarded, many at once, or edited and replayed.

import { change, firstMatches, get, getWhole, mayManage } from "/assets/api.js";
import { h, replace, text } from "/assets/dom.js";
import { actionButton, confirm, formDialog, toast } from "/assets/dialogs.js";
import { fieldText, indented } from "/assets/json-text.js";
import { card, destination, each, empty, field, head, jobLink, number, shortId, table } from "/assets/parts.js";
import { ago } from "/assets/time.js";

const PAGE_COUNT = 200;
const LOADED_MAX = 5_000;
const AT_ONCE = 4;
const ROWS_SHOWN = 100;

// Errors that differ only in numbers and ids are one kind.
export const kindOf = (error) => (error ?? "no error was given").replace(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/gi, "#").replace(/\b(job|sch)_[0-9A-Z]{26}\b/g, "#").replace(/\d+/g, "#").slice(0, 300);

export function groupsOf(jobs) {
  const groups = new Map();
  for (const job of jobs) {
    const kind = `${job.type}\n${kindOf(job.last_error ?? job.reason)}`;
    if (!groups.has(kind)) groups.set(kind, { kind, type: job.type, error: job.last_error ?? job.reason ?? "no error was given", jobs: [] });
    groups.get(kind).jobs.push(job);
  }
  return [...groups.values()].sort((a, b) => b.jobs.length - a.jobs.length);
}

// Edit the payload, then replay. The payload is edited as it was written.
export async function editAndReplay(id) {
  const whole = await getWhole(`/v1/jobs/${encodeURIComponent(id)}`);
  const job = whole.json;
  const before = indented(fieldText(whole.text, "payload") ?? "null");
  const body = h("div", { class: "form-grid" },
    job.target && field("Target", h("input", { name: "target_url", value: job.target.url, autocomplete: "off" })),
    field("Start after", h("input", { name: "delay", placeholder: "now, or such as 5m", autocomplete: "off" })));
  return formDialog({
    title: `Edit and replay ${shortId(id)}`,
    body: [h("p", { class: "soft small" }, job.last_error), h("label", { class: "field" }, "Payload", h("textarea", { name: "payload", rows: 12, spellcheck: "false" }, before)), body],
    action: "Replay",
    send: (data) => {
      const payload = data.get("payload");
      try {
        JSON.parse(payload);
      } catch (fault) {
        throw Object.assign(new Error(`The payload is not JSON: ${fault.message}`), { status: 0 });
      }
      const parts = payload === before ? [] : [`"payload":${payload}`];
      const target = data.get("target_url")?.trim();
      if (target && target !== job.target?.url) parts.push(`"target":${JSON.stringify({ ...job.target, url: target, timeout: undefined })}`);
      if (data.get("delay").trim()) parts.push(`"delay":${JSON.stringify(data.get("delay").trim())}`);
      return change("POST", `/v1/dead-letters/${encodeURIComponent(id)}/replay`, { rawBody: `{${parts.join(",")}}` });
    },
  });
}

function filterForm(query, navigate) {
  const input = (name) => h("input", { name, value: query.get(name), autocomplete: "off", size: 16 });
  const form = h("form", { class: "filters" }, field("Type", input("type")), field("Queue", input("queue")), h("button", { class: "primary" }, "Filter"), h("a", { class: "button", href: "/dead-letters" }, "Clear"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const pairs = [...new FormData(form)].filter(([, value]) => value.trim());
    navigate(`/dead-letters?${new URLSearchParams(pairs)}`, { keepPlace: true });
  });
  return form;
}

function groupCard(group, selected, changed, reload) {
  const boxes = [];
  const all = h("input", { type: "checkbox", "aria-label": `Select all ${group.jobs.length} of this kind`, change: () => {
    for (const job of group.jobs) selected[all.checked ? "add" : "delete"](job.id);
    for (const [box] of boxes) box.checked = all.checked;
    changed();
  } });
  const { node, body } = table(["", "Job", "Died", ["Attempts", "number"], ["Goes to", "wide"], "Error", ""], { caption: `Dead letters: ${group.error.slice(0, 80)}` });
  replace(body, group.jobs.slice(0, ROWS_SHOWN).map((job) => {
    const box = h("input", { type: "checkbox", "aria-label": `Select ${job.id}`, checked: selected.has(job.id), change: () => { selected[box.checked ? "add" : "delete"](job.id); changed(); } });
    boxes.push([box, job]);
    const edit = mayManage() && actionButton("Edit and replay", { work: async () => {
      if (await editAndReplay(job.id)) { toast("It runs again."); await reload(); }
    } });
    return h("tr", { "data-row": true }, h("td", { class: "fixed" }, mayManage() && box), h("td", { class: "fixed" }, jobLink(job.id, shortId(job.id))), h("td", { class: "fixed" }, ago(job.finished_at)), h("td", { class: "number" }, `${job.attempt}/${job.max_attempts}`), h("td", { class: "wide" }, h("span", { class: "excerpt" }, destination(job))), h("td", {}, h("span", { class: "excerpt mono" }, job.last_error ?? job.reason ?? "")), h("td", { class: "fixed" }, edit));
  }));
  const more = group.jobs.length > ROWS_SHOWN && h("p", { class: "soft small" }, `The first ${ROWS_SHOWN} are listed; selecting all means all ${number(group.jobs.length)}.`);
  return h("section", { class: "card", "data-group": group.type }, h("div", { class: "group-head" }, mayManage() && all, h("strong", {}, number(group.jobs.length)), h("span", {}, group.type), h("span", { class: "error" }, group.error)), h("details", { open: group.jobs.length <= 20 }, h("summary", { class: "small soft" }, "Which"), node, more || null));
}

// Discarding goes one by one; replaying takes many at once.
async function discard(ids) {
  let refused = 0;
  await each(ids, AT_ONCE, async (id) => {
    try {
      await change("DELETE", `/v1/dead-letters/${encodeURIComponent(id)}`);
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 409) throw problem;
      refused += 1;
    }
  });
  toast(`${number(ids.length - refused)} discarded.`);
}

async function replay(ids, rate) {
  const answer = await change("POST", "/v1/dead-letters/replay", { body: { ids, ...(rate ? { rate: Number(rate) } : {}) } });
  toast(answer.refused > 0 ? `${number(answer.count)} run again, ${number(answer.refused)} could not.` : `${number(answer.count)} run again.`);
}

export async function show({ root, query, navigate, signal }) {
  const filter = { type: query.get("type"), queue: query.get("queue") };
  const selected = new Set();
  let jobs = [];
  let cursor = null;
  const groups = h("div", {});
  const foot = h("div", { class: "pager" });
  const chosen = h("span", { class: "soft small" });
  const rate = h("input", { type: "number", min: 1, step: 1, size: 6, placeholder: "all at once", "aria-label": "Jobs per second" });
  const bar = h("div", { class: "actions" });
  const changed = () => {
    text(chosen, selected.size === 0 ? "Select what to replay or discard." : `${number(selected.size)} selected`);
    for (const button of bar.querySelectorAll("button")) button.disabled = selected.size === 0;
  };
  async function load(more) {
    const page = await firstMatches("/v1/dead-letters", { ...filter, cursor: more ? cursor : null, limit: PAGE_COUNT }, signal);
    jobs = more ? [...jobs, ...page.items] : page.items;
    cursor = page.next_cursor;
    const { counts } = await get("/v1/jobs/count", { state: "dead" }, signal);
    replace(groups, groupsOf(jobs).map((group) => groupCard(group, selected, changed, reload)), jobs.length === 0 && card(null, empty(cursor ? "None match in the stretch that was looked at." : "There are no dead letters.")));
    replace(foot, h("button", { type: "button", disabled: !cursor || jobs.length >= LOADED_MAX, click: () => load(true) }, "Load more"), h("span", { class: "soft small" }, `${number(jobs.length)} of ${number(counts.dead)} are grouped`));
    changed();
  }
  async function reload() {
    selected.clear();
    await load(false);
  }
  const ids = () => [...selected];
  if (mayManage()) {
    replace(bar, actionButton("Replay selected", { kind: "primary", work: async () => { await replay(ids(), rate.value); await reload(); } }), h("label", { class: "small soft" }, "per second ", rate),
      actionButton("Discard selected", { kind: "danger", work: async () => {
        const done = await confirm({ title: `Discard ${number(selected.size)}?`, text: "They are gone for good.", action: "Discard", danger: true, send: () => discard(ids()) });
        if (done) await reload();
      } }), chosen);
  }
  replace(root, head("Dead letters"), card(null, filterForm(query, navigate)), groups, h("div", { class: "stick" }, bar, foot));
  await load(false);
  const id = query.get("id");
  if (id) {
    editAndReplay(id).then((done) => { if (done) { toast("It runs again."); navigate(`/jobs/${encodeURIComponent(id)}`); } }, (problem) => toast(problem.message, "bad"));
  }
}
