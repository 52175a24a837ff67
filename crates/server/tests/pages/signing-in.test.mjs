// Signing in to a server that asks for keys, in a real browser: by a cookie that no script reads, with what the key's roles
// allow, and with nothing for pages of other sites.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { Browser, closeUnharmed, eventually } from "./browser.mjs";
import { HOSTILE, Server } from "./server.mjs";

const HARMLESS = ["Filter", "From now", "First page", "Next page", "Load more", "Count", "The list has changed: show it"];
let browser;
let server;
let elsewhere;
let tab;
let meant;
let ids;
let keys;

before(async () => {
  server = await Server.start(process.env.TIDEWHEEL_BIN, { asksForKeys: true });
  browser = await Browser.start(process.env.CHROMIUM_BIN);
  elsewhere = createServer((request, response) => response.setHeader("Content-Type", "text/html").end("<!doctype html><title>elsewhere</title>"));
  await new Promise((done) => elsewhere.listen(0, "127.0.0.1", done));
  ids = {
    dead: await server.finish({ type: "import" }, { status: "failed", retryable: false, error: "550 mailbox unknown" }),
    waiting: await server.submit({ type: "reminder", delay: "2h" }),
    schedule: (await server.post("/v1/schedules", { name: "morning-report", type: "report", cron_expr: "0 9 * * *" })).id,
  };
  keys = { viewer: await server.key("viewer", { name: HOSTILE.slice(0, 60) }), producer: await server.key("producer"), other: await server.key("operator", { tenant: "acme" }) };
});

after(async () => {
  elsewhere?.close();
  await browser?.stop();
  await server?.stop();
});

beforeEach(async () => {
  meant = [];
  tab = await browser.tab();
});

afterEach(() => closeUnharmed(tab, meant));

const signInAddress = (path) => `/sign-in?next=${encodeURIComponent(path)}`;

async function signIn(key, path) {
  meant.push("401 /v1/me");
  await tab.open(server.origin, path, signInAddress(path));
  await tab.write("input[name=key]", key);
  await tab.press("Sign in", "main");
  await tab.ready(path);
}

test("one signs in with a key, stays so, and signs out", async () => {
  meant.push("401 /v1/me", "401 /v1/session");
  const path = "/jobs?type=reminder";
  await tab.open(server.origin, path, signInAddress(path));
  await tab.shows("asks for a key");
  await tab.write("input[name=key]", "twk_guessed");
  await tab.press("Sign in", "main");
  await tab.shows("401 unauthorized");
  await tab.write("input[name=key]", server.adminKey);
  await tab.press("Sign in", "main");
  await tab.ready(path);
  await tab.until(`document.querySelectorAll("tbody tr").length === 1`);
  const readable = await tab.run(`document.cookie + JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage })`);
  assert.ok(!readable.includes(server.adminKey) && !readable.includes("tidewheel_session"), readable);
  await tab.open(server.origin, `/jobs/${ids.waiting}`);
  await tab.press("Run now");
  await eventually(async () => (await server.get(`/v1/jobs/${ids.waiting}`)).state === "ready", "the change by the cookie");
  // The page may ask once more before it is left.
  meant.push(...["", "/attempts", "/explain"].map((rest) => `401 /v1/jobs/${ids.waiting}${rest}`));
  await tab.press("Sign out");
  await tab.ready("/sign-in");
  await tab.open(server.origin, "/tenants", signInAddress("/tenants"));
});

test("who may only look is shown no buttons, on no page", async () => {
  await signIn(keys.viewer, "/jobs");
  for (const [path, shown] of [[`/jobs/${ids.dead}`, "import"], [`/jobs/${ids.waiting}`, "reminder"], [`/schedules/${ids.schedule}`, "morning-report"], ["/schedules", "morning-report"], ["/dead-letters", "550 mailbox"], ["/jobs", "import"], ["/", "Jobs by state"], ["/queues", "Workers"], ["/tenants", "This tenant: default"], ["/cluster", "serving"]]) {
    await tab.open(server.origin, path);
    await tab.shows(shown);
    const buttons = await tab.run(`[...document.querySelectorAll("main button, main a.button")].filter((button) => button.offsetParent !== null).map((button) => button.innerText)`);
    assert.deepEqual(buttons.filter((name) => ![...HARMLESS, "Clear"].includes(name)), [], path);
    assert.equal(await tab.run(`document.querySelectorAll("main input[type=checkbox]:not([name=state])").length`), 0, path);
  }
  assert.equal(await tab.run(`document.getElementById("tenant").readOnly`), true);
});

test("who may submit but not manage is shown what they may do", async () => {
  await signIn(keys.producer, `/jobs/${ids.dead}`);
  await tab.shows("import");
  const buttons = await tab.run(`[...document.querySelectorAll("main button, main a.button")].map((button) => button.innerText)`);
  assert.deepEqual(buttons, ["Retry"]);
  await tab.open(server.origin, "/dead-letters");
  await tab.shows("550 mailbox");
  assert.equal(await tab.run(`document.querySelectorAll("main input[type=checkbox]").length`), 0);
});

test("a key of another tenant sees its own", async () => {
  await signIn(keys.other, "/jobs");
  await tab.shows("No job matches");
  assert.equal(await tab.run(`document.getElementById("tenant").value`), "acme");
});

test("a page of another site changes nothing, although the browser sends the cookie", async () => {
  await signIn(server.adminKey, "/jobs");
  const before = (await server.get("/v1/jobs/count")).total;
  const { port } = elsewhere.address();
  // Another port is another origin of the same site, to which the cookie goes along; another name is another site.
  for (const host of ["127.0.0.1", "localhost"]) {
    await tab.send("Page.navigate", { url: `http://${host}:${port}/` });
    await tab.until(`document.title === "elsewhere" && document.readyState === "complete"`);
    meant.push("403 /v1/jobs", "403 /v1/session", "404 /favicon.ico");
    const target = JSON.stringify(server.origin);
    // What it is answered the page is not told; that nothing came of it is looked at below.
    await tab.run(`Promise.all(["/v1/jobs", "/v1/session"].map((path) => fetch(${target} + path, { method: "POST", mode: "no-cors", credentials: "include", body: '{"type":"forged"}' }).catch(() => null))).then(() => null)`);
    await tab.runOrLeave(`(() => { const form = document.createElement("form"); form.method = "post"; form.enctype = "text/plain"; form.action = ${target} + "/v1/jobs"; const input = document.createElement("input"); input.name = '{"type":"forged","x":"'; input.value = '"}'; form.append(input); document.body.append(form); form.submit(); })()`);
    await tab.until(`location.origin === ${target} && (document.body?.innerText ?? "").includes("cross_site_request")`, "the form to be refused");
  }
  assert.equal((await server.get("/v1/jobs/count")).total, before);
  assert.deepEqual((await server.get("/v1/jobs?type=forged")).items, []);
  // Requests to elsewhere were the point here.
  tab.faults.length = 0;
});
