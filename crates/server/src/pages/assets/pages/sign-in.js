// Signing in with a key.

import { signIn } from "/assets/api.js";
import { h, replace } from "/assets/dom.js";
import { problemBox } from "/assets/dialogs.js";
import { card, field, head } from "/assets/parts.js";

export async function show({ root, query, navigate }) {
  const fault = h("div", {});
  const input = h("input", { name: "key", type: "password", required: true, autocomplete: "current-password", placeholder: "twk_…", size: 28 });
  const form = h("form", { class: "filters" }, field("Key", input), h("button", { class: "primary" }, "Sign in"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await signIn(input.value.trim());
      input.value = "";
      dispatchEvent(new CustomEvent("tidewheel:signed-in"));
      const next = query.get("next") ?? "/";
      // Only to a page of this server.
      await navigate(next.startsWith("/") && !next.startsWith("//") ? next : "/", { replaced: true });
    } catch (problem) {
      replace(fault, problemBox(problem));
      input.select();
    }
  });
  replace(root, head("Sign in"), card(null, h("p", {}, "This server asks for a key. Whoever runs it makes keys with ", h("code", {}, "tidewheel key create"), "."), form, fault));
}
