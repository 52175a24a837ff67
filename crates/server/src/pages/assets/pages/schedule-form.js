// The form that makes or changes a schedule, with the fires it would have shown while one writes.

import { ask, change } from "/assets/api.js";
import { h, replace } from "/assets/dom.js";
import { formDialog, problemText } from "/assets/dialogs.js";
import { indented } from "/assets/json-text.js";
import { field } from "/assets/parts.js";
import { clockChanges, exact, inZone } from "/assets/time.js";
import { timeFields } from "/assets/pages/fires.js";

const PREVIEW_COUNT = 8;
const WAIT_MS = 250;
const YEAR_MS = 366 * 86_400_000;

const CHOICES = {
  misfire: ["fire_latest", "fire_all", "skip"],
  overlap: ["allow", "skip", "buffer_one", "cancel_running"],
  gap: ["next_valid", "skip"],
  fold: ["first", "both"],
  priority: ["critical", "high", "normal", "low"],
};

const choice = (name, value) => h("select", { name }, CHOICES[name].map((option) => h("option", { selected: option === value }, option)));
const line = (name, value, options) => h("input", { name, value, autocomplete: "off", spellcheck: "false", ...options });

const zones = () => h("datalist", { id: "zones" }, (Intl.supportedValuesOf?.("timeZone") ?? []).map((zone) => h("option", { value: zone })));

function fields(schedule) {
  const at = schedule ?? {};
  return [
    h("div", { class: "form-grid" },
      field("Name", line("name", at.name)),
      field("Cron expression", line("cron_expr", at.cron_expr, { placeholder: "0 9 * * MON-FRI" })),
      field("or every", line("every", at.every, { placeholder: "15m" })),
      field("Time zone", line("timezone", at.timezone ?? "UTC", { list: "zones" })),
      field("Spread over (window)", line("window", at.window ?? "0s")),
      field("Skipped times (gap)", choice("gap", at.dst?.gap ?? "next_valid")),
      field("Repeated times (fold)", choice("fold", at.dst?.fold ?? "first")),
      field("Missed times", choice("misfire", at.misfire ?? "fire_latest")),
      field("While one runs", choice("overlap", at.overlap ?? "allow")),
      field("Type", line("type", at.type)),
      field("Queue", line("queue", at.queue ?? (at.target ? "" : "default"))),
      field("or target", line("target_url", at.target?.url, { placeholder: "URL" })),
      field("Priority", choice("priority", at.priority ?? "normal")),
      field("Note", line("note", at.note))),
    zones(),
  ];
}

// The time fields as they stand in the form, and those of the schedule that are not in it.
function timing(data, schedule) {
  const out = schedule ? { ...timeFields(schedule), schedule: schedule.id } : {};
  if (!schedule?.start_at) delete out.start_at;
  for (const name of ["cron_expr", "every", "window"]) delete out[name];
  Object.assign(out, { timezone: data.get("timezone") || "UTC", dst: { gap: data.get("gap"), fold: data.get("fold") } });
  for (const name of ["cron_expr", "every", "window"]) if (data.get(name).trim()) out[name] = data.get(name).trim();
  return out;
}

// What the form says beyond what was there; all of it for a new one.
function changes(data, schedule, payload) {
  const out = {};
  const differs = (name, next, before) => { if (JSON.stringify(next) !== JSON.stringify(before ?? null)) out[name] = next; };
  for (const name of ["name", "cron_expr", "every", "timezone", "window", "misfire", "overlap", "type", "queue", "priority", "note"]) {
    differs(name, data.get(name).trim() || null, schedule?.[name]);
  }
  if (data.get("target_url").trim() !== (schedule?.target?.url ?? "")) out.target_url = data.get("target_url").trim() || null;
  const dst = { gap: data.get("gap"), fold: data.get("fold") };
  if (dst.gap !== (schedule?.dst?.gap ?? "next_valid") || dst.fold !== (schedule?.dst?.fold ?? "first")) out.dst = dst;
  const said = Object.entries(out).filter(([, value]) => schedule !== null || value !== null).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`);
  if (data.get("payload").trim() !== payload.trim()) {
    JSON.parse(data.get("payload") || "null");
    said.push(`"payload":${data.get("payload") || "null"}`);
  }
  return said;
}

function showFires(place, fires, zone) {
  const next = clockChanges(zone, Date.now(), Date.now() + YEAR_MS)[0];
  replace(place,
    h("ol", { class: "small" }, fires.map(({ fire_at, note }) => h("li", {}, inZone(fire_at, zone), h("span", { class: "soft" }, `, ${fire_at}`), note && h("strong", { class: "warn" }, ` ${note}`)))),
    fires.length === 0 && h("p", { class: "soft" }, "It would never fire."),
    next && h("p", { class: "small soft" }, `Clocks there are next moved at ${exact(next.at)}, by ${next.byMs / 60_000} minutes.`));
}

function preview(form, from, schedule) {
  const place = h("div", {});
  let turn = 0;
  const draw = async () => {
    turn += 1;
    const mine = turn;
    await new Promise((done) => setTimeout(done, WAIT_MS));
    if (mine !== turn || !form.isConnected) return;
    const data = new FormData(form);
    const body = { ...timing(data, schedule), count: PREVIEW_COUNT };
    if (from.value) body.from = new Date(`${from.value}T00:00`).toISOString();
    if (!body.cron_expr && !body.every) return replace(place, h("p", { class: "soft small" }, "Give a cron expression or an interval."));
    try {
      const { fires } = await ask("/v1/schedules/preview", body);
      if (mine === turn) showFires(place, fires, body.timezone);
    } catch (problem) {
      if (mine === turn) replace(place, h("p", { class: "bad small" }, problemText(problem)));
    }
  };
  return { place, draw };
}

// Opens the form for a schedule, or for a new one. Answers with the schedule as it is then, or null.
export function editSchedule(schedule, version) {
  const { etag, payloadText } = version ?? {};
  const payload = indented(payloadText ?? "null");
  const from = h("input", { type: "date", "aria-label": "Fires from" });
  const place = h("div", {});
  const body = h("div", {}, fields(schedule),
    h("details", {}, h("summary", {}, "Payload"), h("textarea", { name: "payload", rows: 6, spellcheck: "false", "aria-label": "Payload" }, payload)),
    h("section", { class: "notice", "aria-live": "polite" }, h("div", { class: "head" }, h("h3", {}, "It would fire"), h("div", { class: "actions" }, h("span", { class: "small soft" }, "from"), from)), place));
  const done = formDialog({
    title: schedule ? `Change ${schedule.name ?? schedule.id}` : "New schedule",
    body,
    action: schedule ? "Save" : "Create",
    send: (data) => {
      const said = changes(data, schedule, schedule ? payload : "null");
      const rawBody = `{${said.join(",")}}`;
      if (schedule === null) return change("POST", "/v1/schedules", { rawBody });
      return said.length === 0 ? schedule : change("PATCH", `/v1/schedules/${encodeURIComponent(schedule.id)}`, { rawBody, etag });
    },
  });
  const form = body.closest("form");
  const shown = preview(form, from, schedule);
  place.append(shown.place);
  form.addEventListener("input", shown.draw);
  shown.draw();
  return done;
}
