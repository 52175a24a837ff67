// The frame around every page: which one is shown, the theme, the tenant, the keyboard.

import { actAs, currentTenant, isSignedIn, learnWhoAmI, mayAdminister, signOut, whoIsSignedIn } from "/assets/api.js";
import { replace, text } from "/assets/dom.js";
import { problemBox, toast } from "/assets/dialogs.js";
import { listen, showHelp } from "/assets/keys.js";
import { refresh, togglePause } from "/assets/live.js";
import * as cluster from "/assets/pages/cluster.js";
import * as deadLetters from "/assets/pages/dead-letters.js";
import * as job from "/assets/pages/job.js";
import * as jobs from "/assets/pages/jobs.js";
import * as overview from "/assets/pages/overview.js";
import * as queues from "/assets/pages/queues.js";
import * as schedule from "/assets/pages/schedule.js";
import * as schedules from "/assets/pages/schedules.js";
import * as signIn from "/assets/pages/sign-in.js";
import * as tenants from "/assets/pages/tenants.js";

// Address, module, name in the navigation, title.
const PAGES = [
  [/^\/$/, overview, "overview", "Overview"],
  [/^\/jobs$/, jobs, "jobs", "Jobs"],
  [/^\/jobs\/([^/]+)$/, job, "jobs", "Job"],
  [/^\/schedules$/, schedules, "schedules", "Schedules"],
  [/^\/schedules\/([^/]+)$/, schedule, "schedules", "Schedule"],
  [/^\/dead-letters$/, deadLetters, "dead-letters", "Dead letters"],
  [/^\/queues$/, queues, "queues", "Queues and workers"],
  [/^\/tenants$/, tenants, "tenants", "Tenants"],
  [/^\/cluster$/, cluster, "cluster", "Cluster"],
  [/^\/sign-in$/, signIn, "", "Sign in"],
];
const AGAIN_MS = 3_000;
const PATIENCE_MS = 400;
const THEMES = ["system", "light", "dark"];

const main = document.getElementById("main");
const tenantInput = document.getElementById("tenant");
const themeButton = document.getElementById("theme");
const outButton = document.getElementById("sign-out");
let leaving = new AbortController();

// What cannot be read names nothing; the server will say so.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const found = PAGES.map(([address, ...rest]) => [address.exec(location.pathname), ...rest]).find(([match]) => match !== null);
  if (found === undefined) return;
  const [match, module, name, title] = found;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Tidewheel`;
  main.dataset.ready = "false";
  const root = document.createElement("div");
  const context = { root, signal, navigate, query: new URLSearchParams(location.search), id: match[1] === undefined ? null : decoded(match[1]), titled: (shown) => { document.title = `${shown} · Tidewheel`; } };
  // What was shown before stays until there is something else to see, but not for long.
  const soon = setTimeout(() => { if (!signal.aborted) replace(main, root); }, PATIENCE_MS);
  try {
    await module.show(context);
  } catch (problem) {
    if (signal.aborted) return;
    replace(root, problemBox(problem));
    // A server that starts or stops is back in a moment.
    if (problem.status === 0 || problem.status >= 500) setTimeout(() => { if (!signal.aborted) show(); }, AGAIN_MS);
  }
  clearTimeout(soon);
  if (signal.aborted) return;
  if (!root.isConnected) replace(main, root);
  main.dataset.ready = "true";
}

// Goes to an address of these pages.
function navigate(address, { replaced = false, keepPlace = false } = {}) {
  history[replaced ? "replaceState" : "pushState"](null, "", address);
  if (!keepPlace) scrollTo(0, 0);
  return show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (link === null || !plain || event.defaultPrevented) return;
  const address = new URL(link.href, location.href);
  if (address.origin !== location.origin || address.hash !== "" || !PAGES.some(([page]) => page.test(address.pathname))) return;
  event.preventDefault();
  navigate(address.pathname + address.search).then(() => main.focus({ preventScroll: true }));
});
addEventListener("popstate", show);
addEventListener("tidewheel:signed-out", () => {
  if (location.pathname !== "/sign-in") navigate(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`, { replaced: true });
});

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function showTheme() {
  text(themeButton, { system: "Auto", light: "Light", dark: "Dark" }[theme()]);
  themeButton.setAttribute("aria-label", `Theme: ${theme()}`);
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("tidewheel-theme", next);
  } catch {
    // Then it lasts as long as the page.
  }
  showTheme();
}

function showWho() {
  tenantInput.value = currentTenant();
  tenantInput.readOnly = !mayAdminister();
  outButton.classList.toggle("hidden", !isSignedIn());
  outButton.title = `Signed in: ${whoIsSignedIn()}`;
}

outButton.addEventListener("click", async () => {
  try {
    await signOut();
    showWho();
    await navigate("/sign-in");
  } catch (problem) {
    toast(problem.message, "bad");
  }
});
addEventListener("tidewheel:signed-in", showWho);

document.getElementById("tenant-form").addEventListener("submit", (event) => {
  event.preventDefault();
  tenantInput.blur();
});
tenantInput.addEventListener("change", () => {
  actAs(tenantInput.value.trim() || "default");
  showWho();
  show();
});
addEventListener("tidewheel:tenant", () => {
  showWho();
  show();
});
themeButton.addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", showHelp);
listen({ navigate, refresh, togglePause, nextTheme });
showTheme();

// Who signs in says so on that page.
if (location.pathname === "/sign-in") {
  await show();
} else {
  let asksForKey = false;
  try {
    await learnWhoAmI();
  } catch (problem) {
    // Anything else the page that is shown will say.
    asksForKey = problem.status === 401;
  }
  showWho();
  if (!asksForKey) await show();
}
