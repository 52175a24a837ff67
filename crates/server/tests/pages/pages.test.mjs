// Every page in a real browser over a real server: it shows what is there, its buttons do what they say, nothing it shows
// becomes markup, and the browser has nothing to complain about.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { Browser, closeUnharmed, eventually } from "./browser.mjs";
import { HOSTILE, LONG_NUMBER, Server, fill } from "./server.mjs";

const images = process.env.PAGES_IMAGES;
let browser;
let server;
let ids;
let tab;
// Answers that are errors and meant to be, in the test that runs.
let meant;

before(async () => {
  server = await Server.start(process.env.TIDEWHEEL_BIN);
  browser = await Browser.start(process.env.CHROMIUM_BIN);
  ids = await fill(server);
});

after(async () => {
  await browser?.stop();
  await server?.stop();
});

beforeEach(async () => {
  meant = [];
  tab = await browser.tab();
});

afterEach(() => closeUnharmed(tab, meant));

const open = (path) => tab.open(server.origin, path);
const state = async (id) => (await server.get(`/v1/jobs/${id}`)).state;
const becomes = (id, wanted) => eventually(async () => wanted.includes(await state(id)), `${id} to be ${wanted}`);

// Goes to a page by `g` and a key, again if the second came too late after the first.
async function go(key, path) {
  await eventually(async () => {
    await tab.key("g");
    await tab.key(key);
    return (await tab.run("location.pathname")) === path;
  }, `g and ${key} to lead to ${path}`);
  await tab.ready(path);
}

// Keeps a picture of the page for the documents, if asked to.
async function picture(name) {
  if (!images) return;
  mkdirSync(images, { recursive: true });
  writeFileSync(join(images, `${name}.png`), await tab.screenshot());
}

test("the overview says how it is, with numbers that agree with the API", async () => {
  await open("/");
  await tab.shows("dead letters wait");
  await tab.shows("No worker asks for jobs of the queue");
  const { jobs } = await server.get("/v1/overview");
  await tab.shows(String(jobs.dead), "a.tile[href='/dead-letters']");
  assert.match(await tab.text(".tiles"), /\d m?s\b/);
  // The charts need a few samples.
  await tab.until(`[...document.querySelectorAll(".chart .line")].filter((line) => (line.getAttribute("d") ?? "").includes("L")).length >= 4`, "lines in the charts");
  assert.equal(await tab.run(`document.querySelectorAll("svg.chart").length`), 4);
});

test("what is shown on the overview keeps up and does not jump", async () => {
  await open("/");
  const heights = () => tab.run(`[...document.querySelectorAll("main .card, main .tile")].map((node) => Math.round(node.getBoundingClientRect().top + scrollY)).join()`);
  await tab.shows("Waiting");
  await tab.until(`document.querySelectorAll(".chart .line").length > 0`);
  const before = await heights();
  const shown = await tab.text("a.tile[href='/jobs?state=scheduled'] .value");
  const id = await server.submit({ type: "reminder", delay: "5h" });
  await tab.until(`document.querySelector("a.tile[href='/jobs?state=scheduled'] .value").innerText !== ${JSON.stringify(shown)}`, "the new job to be counted");
  assert.equal(await heights(), before);
  await server.post(`/v1/jobs/${id}/cancel`);
});

test("jobs are listed, filtered and counted", async () => {
  await open("/jobs");
  const { counts } = await server.get("/v1/jobs/count");
  await tab.until(`document.querySelectorAll("tbody tr").length === 50`, "a page of jobs");
  await tab.shows(String(counts.succeeded), ".chips");
  await picture("jobs");
  await tab.press("Next page");
  await tab.until(`location.search.includes("cursor=") && document.querySelectorAll("tbody tr").length > 0 && document.getElementById("main").dataset.ready === "true"`);
  await open("/jobs?state=running,retrying");
  await tab.shows("transcode");
  await tab.shows("sync-crm");
  assert.equal(await tab.run(`document.querySelectorAll("tbody tr").length`), 2);
  await tab.write("input[name=type]", "transcode");
  await tab.press("Filter");
  await tab.ready("/jobs?state=running%2Cretrying&type=transcode");
  assert.equal(await tab.run(`document.querySelectorAll("tbody tr").length`), 1);
  await tab.press("Count");
  await tab.shows("1 match");
  await open("/jobs?label.team=growth&queue=mail");
  await tab.shows("plan=pro");
  assert.equal(await tab.run(`document.querySelectorAll("tbody tr").length`), 1);
  await open("/jobs?from=2031-01-01T00:00:00.000Z");
  await tab.shows("No job matches");
});

test("rows stay where they are while jobs come, until they are asked for", async () => {
  await open("/jobs?type=late-comer");
  await tab.shows("No job matches");
  const id = await server.submit({ type: "late-comer", delay: "1h" });
  await tab.press("The list has changed: show it");
  await tab.until(`document.querySelectorAll("tbody tr").length === 1`);
  await server.post(`/v1/jobs/${id}/cancel`);
  await tab.until(`document.querySelector("tbody .badge").innerText === "cancelled"`, "the row to keep up");
});

test("a job shows its life, its payload as text, and what came of it", async () => {
  await open(`/jobs/${ids.dead.hostile}`);
  await tab.shows(`onerror=\\"window.pwned=1\\"`, "pre");
  await tab.shows("<i>worker</i>");
  await tab.shows("note=<b>bold</b>");
  assert.equal(await tab.run(`document.querySelectorAll("main img, main script, main i, main b").length`), 0);
  await open(`/jobs/${ids.succeeded}`);
  await tab.shows("48213");
  await tab.shows("succeeded");
  await open(`/jobs/${ids.dead.number}`);
  await tab.shows(LONG_NUMBER);
  await open(`/jobs/${ids.pushed}`);
  await tab.shows(`{"status":"ok"}`);
  await open(`/jobs/${ids.running}`);
  await tab.shows("render-3");
  await tab.shows(`"percent": 40`);
  await open(`/jobs/${ids.retrying}`);
  await tab.shows("after 1 of 4 failures");
  assert.equal(await tab.run(`document.querySelectorAll("svg.timeline .span.failed").length`), 1);
  await tab.run(`document.querySelector("details").open = true`);
  await tab.shows("to be tried again");
  await tab.run(`scrollTo(0, 0)`);
  await picture("job");
});

test("a job can be run, cancelled and retried", async () => {
  const id = await server.submit({ type: "actions", queue: "actions", delay: "1h" });
  await open(`/jobs/${id}`);
  await tab.press("Run now");
  await becomes(id, ["ready"]);
  await tab.shows("no worker asks for jobs");
  await tab.press("Cancel");
  await tab.press("Cancel the job", "dialog");
  await becomes(id, ["cancelled"]);
  await tab.press("Retry");
  await becomes(id, ["ready", "scheduled"]);
  await tab.press("Cancel");
  await tab.press("Cancel the job", "dialog");
  await becomes(id, ["cancelled"]);
});

test("what is not there is said to be so", async () => {
  const id = "job_00000000000000000000000000";
  meant = ["", "/attempts", "/explain"].map((rest) => `404 /v1/jobs/${id}${rest}`);
  await open(`/jobs/${id}`);
  await tab.shows("job_not_found");
  meant = [...meant, ...["", "/attempts", "/explain"].map((rest) => `404 /v1/jobs/%25ff${rest}`)];
  await open("/jobs/%ff");
  await tab.shows("job_not_found");
});

test("schedules are drawn over a day, with what falls together and where clocks are moved", async () => {
  await open("/schedules");
  await tab.until(`document.querySelectorAll("tbody tr").length >= 9`);
  await tab.until(`document.querySelectorAll("svg.fires .tick.many").length > 10`, "fires that fall together");
  await tab.shows("several schedules fire together");
  await picture("schedules");
  // Clocks in New York go ahead on this day.
  await tab.write("input[type=date]", "2027-03-14");
  await tab.shows("Clocks in America/New_York go ahead by 60 minutes");
  assert.equal(await tab.run(`document.querySelectorAll("svg.fires .dst").length`), 1);
  await open("/schedules?state=paused");
  await tab.shows("year-end");
  assert.equal(await tab.run(`document.querySelectorAll("tbody tr").length`), 1);
});

test("a schedule can be paused, resumed, triggered and edited with a preview", async () => {
  const id = ids.schedules["night-backup"];
  const path = `/v1/schedules/${id}`;
  await open(`/schedules/${id}`);
  await tab.shows("Europe/Berlin");
  await tab.shows("Clocks in Europe/Berlin are moved");
  await tab.press("Pause");
  await eventually(async () => (await server.get(path)).state === "paused", "it to be paused");
  await tab.press("Resume");
  await eventually(async () => (await server.get(path)).state === "active", "it to go on");
  await tab.press("Trigger");
  await eventually(async () => (await server.get(`${path}/firings`)).items.some(({ outcome }) => outcome === "triggered"), "the trigger in the ledger");
  await tab.shows("triggered");
  await tab.run(`document.getElementById("toasts").replaceChildren()`);
  await picture("schedule");
  await tab.press("Edit");
  await tab.shows("It would fire", "dialog");
  await tab.write("dialog input[type=date]", "2027-03-27");
  await tab.shows("dst_gap", "dialog");
  await picture("schedule-edit");
  await tab.write("dialog input[name=cron_expr]", "61 2 * * *");
  meant = ["422 /v1/schedules/preview"];
  await tab.until(`document.querySelector("dialog p.bad") !== null`, "the fault to be named");
  await tab.write("dialog input[name=cron_expr]", "45 3 * * *");
  await tab.shows("03:45", "dialog");
  await tab.press("Save", "dialog");
  await eventually(async () => (await server.get(path)).cron_expr === "45 3 * * *", "the change");
  const kept = await server.get(path);
  assert.deepEqual([kept.timezone, kept.type, kept.queue, kept.payload], ["Europe/Berlin", "backup", "nightly", { team: "ops" }]);
});

test("a schedule can be made and deleted", async () => {
  await open("/schedules");
  await tab.press("New schedule");
  await tab.write("dialog input[name=name]", "made-by-hand");
  await tab.write("dialog input[name=every]", "10m");
  await tab.write("dialog input[name=queue]", "nightly");
  await tab.shows("UTC", "dialog .notice");
  await tab.press("Create", "dialog");
  const { items: [made] } = await eventually(async () => { const page = await server.get("/v1/schedules?name=made-by-hand"); return page.items.length === 1 && page; }, "the schedule");
  await tab.ready(`/schedules/${made.id}`);
  await tab.press("Edit");
  await tab.write("dialog input[name=every]", "");
  await tab.write("dialog input[name=cron_expr]", "0 5 * * *");
  await tab.write("dialog input[name=queue]", "");
  await tab.write("dialog input[name=target_url]", `${server.origin}/healthz`);
  await tab.shows("05:00", "dialog .notice");
  await tab.press("Save", "dialog");
  await tab.shows("POST ");
  const changed = await server.get(`/v1/schedules/${made.id}`);
  assert.deepEqual([changed.cron_expr, changed.every, changed.queue, changed.target.url], ["0 5 * * *", undefined, undefined, `${server.origin}/healthz`]);
  // The page may ask once more before it is left.
  meant = ["", "/firings", "/next"].map((rest) => `404 /v1/schedules/${made.id}${rest}`);
  await tab.press("Delete");
  await tab.press("Delete the schedule", "dialog");
  await tab.ready("/schedules");
  assert.equal((await server.get("/v1/schedules?name=made-by-hand")).items.length, 0);
});

test("dead letters are grouped by error; selected ones are replayed or discarded", async () => {
  await open("/dead-letters");
  await tab.shows("gateway timed out after");
  assert.equal(await tab.run(`document.querySelectorAll("[data-group=charge-card]").length`), 1, "errors that differ in a number are one group");
  assert.equal(await tab.run(`document.querySelectorAll("main img, main script").length`), 0);
  await tab.shows(HOSTILE.slice(0, 30));
  await picture("dead-letters");
  await tab.run(`document.querySelector("[data-group=charge-card] .group-head input").click()`);
  await tab.shows("6 selected");
  await tab.press("Replay selected");
  for (const id of ids.dead.timeouts) await becomes(id, ["scheduled", "ready"]);
  await tab.until(`document.querySelector("[data-group=charge-card]") === null`, "the group to go");
  await tab.run(`document.querySelector("[data-group=send-email] tbody input").click()`);
  await tab.shows("1 selected");
  await tab.press("Discard selected");
  await tab.press("Discard", "dialog");
  await eventually(async () => (await server.get("/v1/dead-letters?type=send-email")).items.length === 2, "one to be gone");
});

test("a dead letter is edited and replayed; its numbers stay as they were written", async () => {
  const id = ids.dead.number;
  await open(`/jobs/${id}`);
  await tab.press("Edit and replay");
  await tab.shows("no such account", "dialog");
  const before = await tab.run(`document.querySelector("dialog textarea").value`);
  assert.ok(before.includes(LONG_NUMBER), before);
  await tab.write("dialog textarea", "{ not json");
  await tab.press("Replay", "dialog");
  await tab.shows("The payload is not JSON", "dialog");
  await tab.write("dialog textarea", before.replace("{", '{ "account": 9,'));
  await tab.write("dialog input[name=delay]", "2h");
  await tab.press("Replay", "dialog");
  await becomes(id, ["scheduled"]);
  const text = await (await fetch(`${server.origin}/v1/jobs/${id}`)).text();
  assert.ok(text.includes(LONG_NUMBER) && text.includes(`"account"`), text);
});

test("queues and workers show what waits and who takes it", async () => {
  await open("/queues");
  await tab.shows("reports");
  await tab.shows("no worker asks for it");
  await tab.shows("mail");
  await tab.until(`document.querySelectorAll("table[aria-label='Connected workers'] tbody tr").length === 1`, "the worker");
  await picture("queues");
});

test("tenants: another one can be looked at, and has nothing of the first", async () => {
  await open("/tenants");
  await tab.shows("This tenant: default");
  await tab.write("main input[name=name]", "acme");
  await tab.press("Go", "main");
  await tab.shows("This tenant: acme");
  await open("/jobs");
  await tab.shows("No job matches");
  assert.equal(await tab.run(`document.getElementById("tenant").value`), "acme");
});

test("a tenant's weight and limits are changed, and whoever is told to wait is shown", async () => {
  await open("/tenants");
  await tab.until(`document.querySelector("[data-tenant=flooder]") !== null`, "the tenant with jobs");
  await tab.press("Edit", "[data-tenant=flooder]");
  await tab.until(`document.querySelector("dialog input[name=weight]") !== null`, "the form");
  await tab.write("dialog input[name=weight]", "3");
  await tab.write("dialog input[name=waiting]", "40");
  await tab.write("dialog input[name=min_interval]", "soon");
  meant = ["422 /v1/tenants/flooder"];
  await tab.press("Save", "dialog");
  await tab.shows("422", "dialog");
  await tab.write("dialog input[name=min_interval]", "1m");
  await tab.press("Save", "dialog");
  const settings = await eventually(async () => { const found = await server.get("/v1/tenants/flooder"); return found.weight === 3 && found; }, "the change");
  assert.deepEqual([settings.limits.waiting, settings.limits.min_interval, settings.limits.concurrency], [40, "1m", null]);
  await assert.rejects(server.call("POST", "/v1/jobs", { type: "flood", delay: "4h" }, { "Tidewheel-Tenant": "flooder" }), / 429 /);
  await tab.key("r");
  await tab.shows("full", "[data-tenant=flooder]");
  await tab.until(`document.querySelector("[data-tenant=flooder] .warn")?.innerText === "1"`, "the refusal");
  await tab.run(`document.getElementById("toasts").replaceChildren()`);
  await picture("tenants");
  await open("/");
  await tab.shows("flooder", "[data-part=tenants]");
});

test("the cluster shows its nodes and shards", async () => {
  await open("/cluster");
  const { shards, nodes } = await server.get("/v1/cluster");
  await tab.until(`document.querySelectorAll(".shard").length === ${shards}`);
  await tab.shows(`epoch ${nodes[0].leases[0].epoch}`);
  await tab.shows("serving");
  await picture("cluster");
});

test("a page is there before a slow answer, and says when there is none", async () => {
  let release;
  await tab.pretend({ "/v1/jobs": new Promise((done) => { release = done; }) });
  await open("/cluster");
  await tab.press("Jobs", "nav");
  await tab.shows("Looking…");
  release([200, { items: [], next_cursor: null }]);
  await tab.shows("No job matches");
  await open("/");
  meant = ["503 /v1/overview"];
  await tab.pretend({ "/v1/overview": [503, { title: "The server is stopping", status: 503, detail: "try again", code: "draining" }] });
  await tab.shows("No answer", "#live");
  await tab.pretend({});
  await tab.key("r");
  await tab.shows("Live", "#live");
});

test("nothing dangerous that was stored anywhere runs on any page", async () => {
  assert.ok(ids.hostile.length >= 2, "too few fields take such strings for this to say anything");
  const paths = ["/", "/jobs", "/jobs?type=hostile", "/schedules", "/dead-letters", "/queues", "/tenants", "/cluster"];
  for (const [path, id] of ids.hostile) paths.push(`${path.replace("/v1", "")}/${id}`);
  paths.push(`/jobs/${ids.succeeded}`, `/jobs/${ids.scheduled}`, `/schedules/${ids.schedules["morning-report"]}`);
  for (const path of paths) {
    await open(path);
    assert.equal(await tab.run(`document.querySelectorAll("main img, main script, main i, main b, main iframe").length`), 0, path);
    assert.equal(await tab.run("window.pwned ?? null"), null, path);
  }
});

test("the keyboard suffices", async () => {
  await open("/");
  await go("j", "/jobs");
  await tab.key("j");
  await tab.key("j");
  assert.equal(await tab.run(`[...document.querySelectorAll("tbody tr")].findIndex((row) => row.classList.contains("current"))`), 1);
  await tab.key("Enter");
  await tab.until(`location.pathname.startsWith("/jobs/job_")`);
  await tab.key("?");
  await tab.shows("Keyboard shortcuts", "dialog");
  await tab.run(`document.querySelector("dialog").close()`);
  await tab.key("p");
  await tab.shows("Paused", "#live");
  await tab.key("p");
  await tab.shows("Live", "#live");
  await go("s", "/schedules");
  await tab.key("/");
  assert.equal(await tab.run(`document.activeElement.name`), "state");
});

test("light and dark: as the system has it, or as chosen, also after a reload", async () => {
  const paper = () => tab.run(`getComputedStyle(document.body).backgroundColor`);
  await tab.scheme("light");
  await open("/");
  const light = await paper();
  await tab.scheme("dark");
  const dark = await paper();
  assert.notEqual(light, dark);
  await tab.press("Auto");
  assert.equal(await paper(), light);
  await picture("overview");
  await open("/cluster");
  assert.equal(await paper(), light);
  await tab.press("Light");
  await tab.scheme("light");
  assert.equal(await paper(), dark);
  await open("/");
  await tab.until(`[...document.querySelectorAll(".chart .line")].some((line) => (line.getAttribute("d") ?? "").includes("L"))`);
  await picture("overview-dark");
});

test("no page is wider than a narrow screen", async () => {
  await tab.size(360, 740);
  for (const path of ["/", "/jobs", `/jobs/${ids.dead.hostile}`, "/schedules", `/schedules/${ids.schedules["morning-report"]}`, "/dead-letters", "/queues", "/tenants", "/cluster", "/sign-in"]) {
    await open(path);
    const [wide, room] = await tab.run(`[document.documentElement.scrollWidth, innerWidth]`);
    assert.ok(wide <= room, `${path} is ${wide} wide in ${room}`);
    if (path === "/") await picture("overview-narrow");
  }
});

test("the policy is strict, and the API's addresses stay the API's", async () => {
  const page = await fetch(`${server.origin}/jobs/${ids.succeeded}`);
  assert.equal(page.status, 200);
  assert.match(page.headers.get("content-type"), /^text\/html/);
  const policy = page.headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self';/);
  assert.ok(!policy.includes("unsafe"));
  assert.match(policy, /frame-ancestors 'none'/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  assert.equal(page.headers.get("x-frame-options"), "DENY");
  assert.equal(page.headers.get("referrer-policy"), "no-referrer");
  const again = await fetch(`${server.origin}/jobs/${ids.succeeded}`, { headers: { "If-None-Match": page.headers.get("etag") } });
  assert.equal(again.status, 304);
  for (const path of ["/v1/nothing", "/nothing", "/assets/nothing.js", "/jobs/a/b", "/..%2f..%2fetc/passwd", "/assets/..%2f..%2f..%2fetc%2fpasswd", "/assets/%2e%2e/mod.rs"]) {
    const answer = await fetch(server.origin + path);
    assert.equal(answer.status, 404, path);
    assert.equal((await answer.json()).code, "not_found");
  }
});
