// The keyboard: what the keys do, and the page that says so.

import { h } from "/assets/dom.js";

const SEQUENCE_MS = 1_200;

// Keys that open a page after `g`.
const PAGES = { o: ["/", "Overview"], j: ["/jobs", "Jobs"], s: ["/schedules", "Schedules"], d: ["/dead-letters", "Dead letters"], q: ["/queues", "Queues and workers"], t: ["/tenants", "Tenants"], c: ["/cluster", "Cluster"] };

const ROWS = [
  [["?"], "this list"],
  [["/"], "go to the first filter"],
  [["j", "k"], "next and previous row"],
  [["Enter"], "open the row"],
  [["x"], "select the row, where rows can be selected"],
  [["r"], "ask again now"],
  [["p"], "pause and go on with live data"],
  [["m"], "light, dark, or as the system has it"],
  ...Object.entries(PAGES).map(([key, [, name]]) => [["g", key], name]),
];

export function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const keys = (names) => names.flatMap((name, index) => [index > 0 ? " " : "", h("kbd", {}, name)]);
  const dialog = h("dialog", { "aria-label": "Keyboard shortcuts", close: () => dialog.remove() },
    h("h2", {}, "Keyboard shortcuts"),
    h("table", {}, h("tbody", {}, ROWS.map(([names, meaning]) => h("tr", {}, h("td", { class: "fixed" }, keys(names)), h("td", {}, meaning))))),
    h("div", { class: "actions" }, h("a", { href: "/docs" }, "The API's reference"), h("button", { type: "button", click: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

function move(by) {
  const rows = [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  rows[at]?.classList.remove("current");
  next.classList.add("current");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a, button, input") ?? next).focus({ preventScroll: true });
}

const current = () => document.querySelector("main [data-row].current");

// Listens to the keyboard. Keys do nothing special while somebody writes or a dialog is open.
export function listen({ navigate, refresh, togglePause, nextTheme }) {
  let gone = -SEQUENCE_MS;
  const keys = {
    "?": showHelp,
    "/": () => (document.querySelector("main form.filters input:not([type=checkbox]), main form.filters select") ?? document.querySelector("main input:not([type=checkbox])"))?.focus(),
    j: () => move(1),
    k: () => move(-1),
    x: () => current()?.querySelector("input[type=checkbox]")?.click(),
    r: refresh,
    p: togglePause,
    m: nextTheme,
    g: () => { gone = performance.now(); },
  };
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || writes || document.querySelector("dialog[open]")) return;
    const page = performance.now() - gone < SEQUENCE_MS ? PAGES[event.key] : undefined;
    gone = -SEQUENCE_MS;
    if (page !== undefined) navigate(page[0]);
    else if (Object.hasOwn(keys, event.key)) keys[event.key]();
    else return;
    event.preventDefault();
  });
}
