// Building the document. Whatever is shown goes in as text, so that nothing in a payload or a name can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

// An element. Attributes that are functions listen to the event of that name.
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// An element of a drawing.
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Puts other children in the place of those that are there.
export function replace(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

// Sets a text only where it differs, so that a selection survives.
export function text(node, value) {
  const next = String(value ?? "");
  if (node.textContent !== next) node.textContent = next;
  return node;
}

// Brings the children of `parent` in line with `items`: keeps the nodes of items that stay and moves only what must be.
export function keyed(parent, items, { key, make, update }) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = old.get(name);
    old.delete(name);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = name;
    }
    update?.(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}
