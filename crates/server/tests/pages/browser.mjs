// A headless Chromium, driven over the DevTools protocol through a pipe: no library, no port.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const WAIT_MS_MAX = 30_000;
const LOOK_EVERY_MS = 50;

// What the browser says of a page that was left while it was asked for something.
const PAGE_LEFT = /navigated or closed|context was destroyed|Cannot find (default execution )?context/;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Looks again and again until there is something to see.
export async function eventually(look, what, waitMs = WAIT_MS_MAX) {
  const until = Date.now() + waitMs;
  let last;
  do {
    last = await look();
    if (last) return last;
    await pause(LOOK_EVERY_MS);
  } while (Date.now() < until);
  throw new Error(`waited in vain for ${what}; last seen: ${JSON.stringify(last)}`);
}

// Closes a tab in which nothing may have gone wrong but the answers that were meant to be errors.
export async function closeUnharmed(tab, meant) {
  const { faults, refused } = tab;
  const pwned = await tab.run("window.pwned ?? null");
  await tab.close();
  assert.equal(pwned, null, "a script was smuggled in");
  assert.deepEqual(faults, []);
  assert.deepEqual(refused.filter((answer) => !meant.includes(answer)), []);
}

export class Browser {
  #child;
  #profile;
  #next = 1;
  #calls = new Map();
  #listeners = new Map();

  static async start(program) {
    const browser = new Browser();
    browser.#profile = mkdtempSync(join(tmpdir(), "tidewheel-pages-"));
    const flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-GB", `--user-data-dir=${browser.#profile}`];
    // Chromium's own sandbox does not work for root, as in containers.
    if (process.getuid?.() === 0) flags.push("--no-sandbox");
    browser.#child = spawn(program, [...flags, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], env: { ...process.env, TZ: "Europe/Berlin" } });
    const gone = (why) => {
      for (const call of browser.#calls.values()) call.fail(new Error(`${call.method}: the browser is gone (${why})`));
      browser.#calls.clear();
    };
    browser.#child.once("exit", (code, signal) => gone(code ?? signal)).once("error", gone);
    for (const pipe of browser.#child.stdio.slice(3)) pipe.on("error", gone);
    let rest = "";
    browser.#child.stdio[4].setEncoding("utf8").on("data", (chunk) => {
      const messages = (rest + chunk).split("\0");
      rest = messages.pop();
      for (const message of messages) browser.#hear(JSON.parse(message));
    });
    await browser.send("Browser.getVersion");
    return browser;
  }

  #hear(message) {
    const call = this.#calls.get(message.id);
    if (call) {
      this.#calls.delete(message.id);
      if (message.error) call.fail(new Error(`${call.method}: ${message.error.message}`));
      else call.done(message.result);
    } else if (message.method) this.#listeners.get(message.sessionId)?.(message.method, message.params);
  }

  send(method, params = {}, sessionId) {
    const id = this.#next++;
    this.#child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((done, fail) => this.#calls.set(id, { done, fail, method }));
  }

  // A tab of its own, with its own storage.
  async tab() {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const tab = new Tab(this, sessionId, browserContextId);
    this.#listeners.set(sessionId, (method, params) => tab.heard(method, params));
    for (const part of ["Page", "Runtime", "Log", "Network", "Audits"]) await tab.send(`${part}.enable`);
    await tab.size(1_120, 800);
    return tab;
  }

  async stop() {
    const gone = new Promise((done) => this.#child.once("exit", done));
    await this.send("Browser.close").catch(() => {});
    await gone;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

class Tab {
  // Everything that should not be: exceptions, console errors, refusals by the policy, requests to elsewhere.
  faults = [];
  // Answers that are errors, as `status path`; some are meant.
  refused = [];
  #browser;
  #session;
  #context;
  #origin = null;
  #pretended = {};

  constructor(browser, session, context) {
    this.#browser = browser;
    this.#session = session;
    this.#context = context;
  }

  send(method, params) {
    return this.#browser.send(method, params, this.#session);
  }

  heard(method, params) {
    // A page that was left meanwhile needs no answer.
    if (method === "Fetch.requestPaused") this.#paused(params).catch(() => {});
    if (method === "Runtime.exceptionThrown") this.faults.push(`exception: ${params.exceptionDetails.exception?.description ?? params.exceptionDetails.text}`);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) this.faults.push(`console: ${params.args.map((arg) => arg.value ?? arg.description).join(" ")}`);
    // What the network refused is looked at by its answer.
    if (method === "Log.entryAdded" && params.entry.source !== "network" && params.entry.level === "error") this.faults.push(`log: ${params.entry.text}`);
    if (method === "Audits.issueAdded" && params.issue.code === "ContentSecurityPolicyIssue") this.faults.push(`policy: ${JSON.stringify(params.issue.details)}`);
    if (method === "Network.responseReceived" && params.response.status >= 400) this.refused.push(`${params.response.status} ${new URL(params.response.url).pathname}`);
    if (method === "Network.requestWillBeSent" && this.#origin !== null && !params.request.url.startsWith(this.#origin) && !params.request.url.startsWith("data:")) this.faults.push(`elsewhere: ${params.request.url}`);
  }

  // Answers these addresses in the server's stead: a path to a status and a body (or a
  // promise of them), or to a function of what it answered.
  async pretend(answers) {
    this.#pretended = answers;
    await this.send("Fetch.enable", { patterns: Object.keys(answers).map((path) => ({ urlPattern: `*${path}*`, requestStage: "Response" })) });
  }

  async #paused({ requestId, request, responseStatusCode }) {
    const answer = await this.#pretended[new URL(request.url).pathname];
    if (answer === undefined) return this.send("Fetch.continueResponse", { requestId });
    const { body, base64Encoded } = await this.send("Fetch.getResponseBody", { requestId });
    const was = base64Encoded ? Buffer.from(body, "base64").toString() : body;
    const [status, next] = typeof answer === "function" ? [responseStatusCode, answer(JSON.parse(was))] : answer;
    return this.send("Fetch.fulfillRequest", { requestId, responseCode: status, responseHeaders: [{ name: "Content-Type", value: "application/json" }], body: Buffer.from(JSON.stringify(next)).toString("base64") });
  }

  // Opens an address from outside, as a link in a mail would, and waits for the page.
  async open(origin, path, landing = path) {
    this.#origin = origin;
    await this.send("Page.navigate", { url: origin + path });
    await this.ready(landing);
  }

  // Waits until the page is shown.
  async ready(path) {
    const wanted = JSON.stringify(path);
    await this.until(`location.pathname + location.search === ${wanted} && document.getElementById("main")?.dataset.ready === "true"`, `the page ${path}`);
  }

  // The value of an expression in the page; promises are waited for.
  async run(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true, userGesture: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  // As `run`, where the page may be left meanwhile: then there is no value.
  async runOrLeave(expression) {
    try {
      return await this.run(expression);
    } catch (error) {
      if (!PAGE_LEFT.test(error.message)) throw error;
      return undefined;
    }
  }

  until(expression, what = expression) {
    return eventually(() => this.runOrLeave(expression), what);
  }

  text(selector = "main") {
    return this.run(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);
  }

  shows(words, selector = "main") {
    return this.until(`(document.querySelector(${JSON.stringify(selector)})?.innerText ?? "").includes(${JSON.stringify(words)})`, `${JSON.stringify(words)} in ${selector}`);
  }

  // Presses the button or link of this name, once it can be pressed.
  async press(name, within = "body") {
    const find = `[...document.querySelectorAll(${JSON.stringify(within)} + " button, " + ${JSON.stringify(within)} + " a")].find((node) => (node.innerText ?? "").trim() === ${JSON.stringify(name)} && !node.disabled)`;
    await this.until(`${find} !== undefined`, `the button ${name}`);
    await this.runOrLeave(`${find}.click()`);
  }

  // Writes into a field as somebody would.
  async write(selector, value) {
    await this.run(`(() => { const node = document.querySelector(${JSON.stringify(selector)}); node.focus(); node.value = ${JSON.stringify(value)}; node.dispatchEvent(new Event("input", { bubbles: true })); node.dispatchEvent(new Event("change", { bubbles: true })); })()`);
  }

  async key(key) {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key });
  }

  size(width, height) {
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  scheme(value) {
    return this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  }

  async screenshot() {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }

  close() {
    return this.#browser.send("Target.disposeBrowserContext", { browserContextId: this.#context });
  }
}
