// A real server on a free port with an embedded store, filled over the API with jobs in every state that can be had
// quickly, schedules in several zones, and strings that would be dangerous if they became markup.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { eventually } from "./browser.mjs";

export const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>"'\`{{7*7}}`;
// Longer than a number in a script can be told apart.
export const LONG_NUMBER = "12345678901234567890.10";

export class Server {
  #children = [];
  #data;

  // `asksForKeys`: whether it does, in which case calls from here are made with the first admin's.
  static async start(program, { asksForKeys = false } = {}) {
    const server = new Server();
    server.program = program;
    server.#data = mkdtempSync(join(tmpdir(), "tidewheel-data-"));
    const keyFile = join(server.#data, "admin.key");
    const flags = asksForKeys ? ["--admin-key-file", keyFile] : [];
    const child = spawn(program, ["serve", "--listen", "127.0.0.1:0", "--data", join(server.#data, "data"), ...flags], { stdio: ["ignore", "ignore", "pipe"] });
    server.#children.push(child);
    server.origin = await new Promise((done, fail) => {
      const lines = createInterface({ input: child.stderr });
      const seen = [];
      lines.on("line", (line) => {
        seen.push(line);
        const found = /listening on (http:\/\/[0-9.:]+)/.exec(line.replaceAll(/\u001b\[[0-9;]*m/g, ""));
        if (found) done(found[1]);
      });
      child.once("exit", () => fail(new Error(`the server did not start:\n${seen.join("\n")}`)));
    });
    if (asksForKeys) server.adminKey = readFileSync(keyFile, "utf8").trim();
    return server;
  }

  // A worker that runs a command per job.
  worker(queue, ...command) {
    this.#children.push(spawn(this.program, ["worker", "run", "--url", this.origin, "--name", `${queue}-worker`, "--queue", queue, "--", ...command], { stdio: "ignore" }));
  }

  async call(method, path, body, headers = {}) {
    const authorization = this.adminKey ? { Authorization: `Bearer ${this.adminKey}` } : {};
    const response = await fetch(this.origin + path, { method, headers: { "Content-Type": "application/json", ...authorization, ...headers }, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === "" ? null : JSON.parse(text);
  }

  get(path) {
    return this.call("GET", path);
  }

  post(path, body = {}) {
    return this.call("POST", path, body);
  }

  // A key with one role.
  async key(role, more = {}) {
    return (await this.post("/v1/keys", { role, ...more })).secret;
  }

  async submit(job) {
    return (await this.post("/v1/jobs", job)).id;
  }

  // Submits a job to a queue of its own, takes it, and says how it ended.
  async finish(job, outcome) {
    const queue = job.queue ?? "by-hand";
    const id = await this.submit({ ...job, queue });
    const { worker = "worker-1", ...said } = outcome;
    await this.report(await this.take(queue, worker), said);
    return id;
  }

  report(taken, outcome) {
    return this.post(`/v1/jobs/${taken.id}/outcome`, { token: taken.token, ...outcome });
  }

  async take(queue, worker) {
    const { jobs } = await this.post(`/v1/queues/${queue}/take`, { worker, max: 1, wait: "20s", lease: "10m" });
    if (jobs.length === 0) throw new Error(`nothing came from ${queue}`);
    return jobs[0];
  }

  async stop() {
    for (const child of this.#children.reverse()) {
      const gone = new Promise((done) => child.once("exit", done));
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGTERM");
        await gone;
      }
    }
    rmSync(this.#data, { recursive: true, force: true });
  }
}

async function fillSchedules(server) {
  const base = { queue: "nightly", payload: { team: "ops" } };
  const rows = [
    { name: "morning-report", cron_expr: "0 9 * * *", timezone: "America/New_York", type: "report", note: HOSTILE },
    { name: "opening-bell", cron_expr: "30 9 * * *", timezone: "America/New_York", type: "report" },
    { name: "night-backup", cron_expr: "30 2 * * *", timezone: "Europe/Berlin", type: "backup" },
    { name: "invoice-run", cron_expr: "0 */2 * * *", timezone: "Europe/Berlin", type: "invoices" },
    { name: "india-digest", cron_expr: "15 7 * * *", timezone: "Asia/Kolkata", type: "digest" },
    { name: "island-tide-table", cron_expr: "0 */2 * * *", timezone: "Australia/Lord_Howe", type: "tides" },
    { name: "heartbeat", every: "15m", type: "ping" },
    { name: "every-minute", cron_expr: "* * * * *", timezone: "UTC", type: "ping" },
    { name: "year-end", cron_expr: "0 0 31 12 *", timezone: "Pacific/Auckland", type: "close", paused: true },
  ];
  const ids = {};
  for (const row of rows) ids[row.name] = (await server.post("/v1/schedules", { ...base, ...row })).id;
  return ids;
}

async function fillDead(server) {
  const dead = { status: "failed", retryable: false };
  const ids = { timeouts: [], refused: [] };
  for (let count = 0; count < 6; count += 1) ids.timeouts.push(await server.finish({ type: "charge-card", payload: { order: 1_000 + count } }, { ...dead, error: `gateway timed out after ${30 + count} s` }));
  for (let count = 0; count < 3; count += 1) ids.refused.push(await server.finish({ type: "send-email", payload: { to: `user${count}@example.com` } }, { ...dead, error: `550 mailbox ${count} unknown` }));
  ids.hostile = await server.finish({ type: "import", payload: { html: HOSTILE }, labels: { note: "<b>bold</b>" } }, { ...dead, error: HOSTILE, worker: "<i>worker</i>" });
  ids.number = (await server.post("/v1/jobs", `{"type":"ledger","queue":"by-hand","payload":{"amount":${LONG_NUMBER}}}`)).id;
  await server.report(await server.take("by-hand", "worker-1"), { ...dead, error: "no such account" });
  return ids;
}

// Dangerous strings in every field that takes them; a field that refuses them is safe by that.
async function fillHostile(server) {
  const tries = [
    ["/v1/jobs", { type: HOSTILE, delay: "9h" }],
    ["/v1/jobs", { type: "<svg/onload=window.pwned=4>", delay: "9h" }],
    ["/v1/jobs", { type: "hostile", queue: HOSTILE, delay: "9h" }],
    ["/v1/jobs", { type: "hostile", labels: { [HOSTILE]: HOSTILE }, delay: "9h" }],
    ["/v1/jobs", { type: "hostile", idempotency_key: HOSTILE, payload: HOSTILE, delay: "9h" }],
    ["/v1/jobs", { type: "hostile", target: { url: `${server.origin}/<img src=x onerror=window.pwned=3>`, headers: { "X-Note": HOSTILE } }, delay: "9h" }],
    ["/v1/schedules", { name: HOSTILE, type: "hostile", every: "12h", note: HOSTILE, payload: HOSTILE, labels: { note: HOSTILE } }],
  ];
  const accepted = [];
  for (const [path, body] of tries) {
    try {
      accepted.push([path, (await server.post(path, body)).id]);
    } catch (refusal) {
      if (!/ (400|422) /.test(refusal.message)) throw refusal;
    }
  }
  return accepted;
}

// Another tenant is busy all the while, so that there is something to see in the charts.
async function busy(server) {
  const jobs = Array.from({ length: 900 }, (_, index) => ({ type: "stock-check", delay: `${index * 100}ms`, target: { url: `${server.origin}/healthz`, method: "GET" } }));
  await server.call("POST", "/v1/jobs/batch", jobs, { "Tidewheel-Tenant": "warehouse" });
}

// Fills the server and says what is there.
export async function fill(server) {
  const ids = {};
  await busy(server);
  server.worker("mail", "sh", "-c", "cat >/dev/null; echo '{\"sent\": true}'");
  await server.post("/v1/jobs/batch", Array.from({ length: 60 }, (_, number) => ({ type: "send-email", queue: "mail", payload: { number } })));
  ids.dead = await fillDead(server);
  ids.succeeded = await server.finish({ type: "resize-image", payload: { w: 640 }, labels: { team: "media" } }, { status: "succeeded", result: { bytes: 48_213, name: HOSTILE } });
  const retried = { type: "sync-crm", payload: { account: 7 }, retry: { max_attempts: 4 } };
  ids.retrying = await server.finish(retried, { status: "failed", error: "503 try later", retry_after: "1h" });
  await server.submit({ type: "transcode", queue: "running", payload: { video: 12 } });
  const running = await server.take("running", "render-3");
  ids.running = running.id;
  await server.post(`/v1/jobs/${running.id}/heartbeat`, { token: running.token, progress: { percent: 40 } });
  ids.scheduled = await server.submit({ type: "reminder", delay: "2h", queue: "mail", labels: { team: "growth", plan: "pro" }, payload: { html: HOSTILE } });
  ids.cancelled = await server.submit({ type: "reminder", delay: "3h" });
  await server.post(`/v1/jobs/${ids.cancelled}/cancel`);
  ids.ready = [];
  for (let count = 0; count < 12; count += 1) ids.ready.push(await server.submit({ type: "report", queue: "reports", payload: { count }, priority: count % 3 === 0 ? "high" : "normal" }));
  ids.pushed = await server.submit({ type: "webhook", target: { url: `${server.origin}/healthz`, method: "GET" } });
  ids.unanswered = await server.submit({ type: "webhook", target_url: `${server.origin}/nowhere` });
  ids.schedules = await fillSchedules(server);
  ids.hostile = await fillHostile(server);
  await server.call("POST", "/v1/jobs/batch", Array.from({ length: 40 }, () => ({ type: "flood", delay: "4h" })), { "Tidewheel-Tenant": "flooder" });
  await eventually(async () => (await server.get("/v1/jobs/count?state=succeeded")).count >= 60, "the worker to be done");
  await eventually(async () => (await server.get(`/v1/jobs/${ids.unanswered}`)).state === "dead", "the refused push to be dead");
  return ids;
}
