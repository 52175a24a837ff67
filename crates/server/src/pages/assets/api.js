// Talking to the server. The same API as everybody's; every refusal comes out as a Problem.

const TENANT = "tidewheel-tenant";
const LOOK_MS_MAX = 3_000;

function stored(storage, name) {
  try {
    return storage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

function store(storage, name, value) {
  try {
    if (value) storage.setItem(name, value);
    else storage.removeItem(name);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
}

let tenant = stored(localStorage, TENANT);
// Who is signed in, as the server says; nothing is allowed until it does.
let me = { tenant: "default", may: [], keys_required: true, session: null };

const may = (what) => me.may.includes(what);
export const mayChange = () => may("submit");
export const mayManage = () => may("manage");
export const mayAdminister = () => may("administer");
export const isSignedIn = () => me.session !== null;
export const whoIsSignedIn = () => me.key_name ?? me.key_id ?? "";

export const currentTenant = () => tenant || me.tenant;

export function actAs(name) {
  tenant = name === me.tenant ? "" : name;
  store(localStorage, TENANT, tenant);
}

// A refusal, or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? body?.title ?? (status === 0 ? "The server does not answer." : `The server answered with ${status}.`));
    this.status = status;
    this.code = body?.code ?? null;
    this.errors = body?.errors ?? [];
  }
}

function address(path, query) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return search ? `${path}?${search}` : path;
}

function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

async function send(method, path, { query, body, rawBody, headers, signal } = {}) {
  const head = { Accept: "application/json", ...headers };
  if (tenant && !head["Tidewheel-Tenant"]) head["Tidewheel-Tenant"] = tenant;
  if (me.session && method !== "GET") head["Tidewheel-CSRF"] = me.session.csrf_token;
  const text = rawBody ?? (body === undefined ? undefined : JSON.stringify(body));
  if (text !== undefined) head["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, query), { method, headers: head, body: text, signal, credentials: "same-origin", cache: "no-store" });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new Problem(0, null);
  }
  const answer = await response.text();
  if (!response.ok) {
    let document = null;
    try {
      document = JSON.parse(answer);
    } catch {
      // Something between here and the server answered; its status has to do.
    }
    const problem = new Problem(response.status, document);
    if (response.status === 401) dispatchEvent(new CustomEvent("tidewheel:signed-out"));
    throw problem;
  }
  return { text: answer, json: answer === "" ? null : JSON.parse(answer), etag: response.headers.get("ETag") };
}

export const get = async (path, query, signal) => (await send("GET", path, { query, signal })).json;

// Also the answer as it was written, and its version.
export const getWhole = (path, query, signal) => send("GET", path, { query, signal });

// A page of a list. Where few match, the server looks at so many and then says where to go on; that is followed for a
// moment, until there is something to show.
export async function firstMatches(path, query, signal) {
  const began = performance.now();
  let page = await get(path, query, signal);
  while (page.items.length === 0 && page.next_cursor && performance.now() - began < LOOK_MS_MAX) {
    page = await get(path, { ...query, cursor: page.next_cursor }, signal);
  }
  return page;
}

// A change, under a key of its own, so that trying again after a lost answer does it once.
export async function change(method, path, { body, rawBody, query, etag } = {}) {
  const headers = { "Idempotency-Key": freshKey() };
  if (etag) headers["If-Match"] = etag;
  const options = { query, body, rawBody, headers };
  try {
    return (await send(method, path, options)).json;
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status !== 0) throw problem;
    return (await send(method, path, options)).json;
  }
}

// A question that is too long for an address.
export const ask = async (path, body, signal) => (await send("POST", path, { body, signal })).json;

// Asks who is signed in and what they may do. A server without keys lets everybody do everything.
export async function learnWhoAmI() {
  const chosen = tenant;
  tenant = "";
  try {
    me = (await send("GET", "/v1/me")).json;
  } catch (problem) {
    tenant = chosen;
    throw problem;
  }
  // Only who may act for every tenant chooses one.
  tenant = mayAdminister() && chosen !== me.tenant ? chosen : "";
}

// Signs in: the server sets a cookie that no script can read, and the key is forgotten here.
export async function signIn(secret) {
  await send("POST", "/v1/session", { body: { key: secret } });
  try {
    await learnWhoAmI();
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    throw Object.assign(new Error("The browser has not kept the cookie. It does so over TLS, or where the server is on this machine."), { status: 0 });
  }
}

export async function signOut() {
  await send("DELETE", "/v1/session");
  me = { ...me, may: [], session: null };
}
