// Asking before something is done, and saying what came of it.

import { h, replace } from "/assets/dom.js";

const TOAST_MS = 6_000;
const toasts = document.getElementById("toasts");

export function toast(message, kind = "") {
  const node = h("div", { class: `toast ${kind}` }, message);
  toasts.append(node);
  setTimeout(() => node.remove(), TOAST_MS);
}

// What is wrong, with each fault where the server named several.
export function problemText(problem) {
  const faults = (problem.errors ?? []).map(({ pointer, detail }) => `${pointer ? `${pointer}: ` : ""}${detail}`);
  return faults.length > 1 ? `${problem.message} ${faults.join("; ")}` : problem.message;
}

export function problemBox(problem) {
  if (problem.status === undefined) console.error(problem);
  return h("div", { class: "problem", role: "alert" }, h("strong", {}, problem.status ? `${problem.status} ${problem.code ?? ""} ` : ""), problemText(problem));
}

// Shows a dialog with a form. `send` gets the form's data; the dialog stays open with the fault if it throws.
export function formDialog({ title, body, action, danger = false, send }) {
  return new Promise((done) => {
    const fault = h("div", {});
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const form = h("form", { method: "dialog" }, h("h2", {}, title), body, fault,
      h("div", { class: "actions" }, h("button", { type: "button", click: () => dialog.close() }, "Cancel"), go));
    const dialog = h("dialog", { "aria-label": title }, form);
    let result = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        result = { value: await send(new FormData(form)) };
        dialog.close();
      } catch (problem) {
        replace(fault, problemBox(problem));
      }
      go.disabled = false;
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const confirm = ({ title, text, action, danger, send }) => formDialog({ title, body: h("p", {}, text), action, danger, send });

// A button that does something once at a time and says what came of it.
export function actionButton(label, { kind = "", work, said, title }) {
  const button = h("button", { type: "button", class: kind, title, click: async () => {
    button.disabled = true;
    try {
      const result = await work();
      if (result !== null && said) toast(said);
    } catch (problem) {
      toast(problemText(problem), "bad");
      if (problem.status === undefined) console.error(problem);
    }
    button.disabled = false;
  } }, label);
  return button;
}
