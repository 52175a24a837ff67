// JSON as it was written. Reading it into numbers and writing it again would change long numbers, and a payload is kept
// byte for byte; so it is shown and edited as text.

const SPACE = /\s/;

function afterSpace(text, at) {
  while (at < text.length && SPACE.test(text[at])) at += 1;
  return at;
}

function afterString(text, at) {
  at += 1;
  while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

function afterValue(text, at) {
  let depth = 0;
  while (at < text.length) {
    const sign = text[at];
    if (sign === '"') {
      at = afterString(text, at);
      if (depth === 0) return at;
      continue;
    }
    if (sign === "{" || sign === "[") depth += 1;
    else if (sign === "}" || sign === "]") {
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (sign === "," || SPACE.test(sign))) return at;
    at += 1;
  }
  return at;
}

// The value of a field of an object, as it was written; null if there is none.
export function fieldText(text, name) {
  let at = afterSpace(text, 0) + 1;
  while (at < text.length) {
    at = afterSpace(text, at);
    if (text[at] !== '"') return null;
    const keyEnd = afterString(text, at);
    const found = JSON.parse(text.slice(at, keyEnd)) === name;
    at = afterSpace(text, afterSpace(text, keyEnd) + 1);
    const end = afterValue(text, at);
    if (found) return text.slice(at, end);
    at = afterSpace(text, end) + 1;
  }
  return null;
}

// The same with line breaks and indents; strings and numbers stay as they are.
export function indented(text) {
  let out = "";
  let depth = 0;
  const newLine = () => `\n${"  ".repeat(depth)}`;
  for (let at = 0; at < text.length; ) {
    const sign = text[at];
    if (sign === '"') {
      const end = afterString(text, at);
      out += text.slice(at, end);
      at = end;
      continue;
    }
    const next = text[afterSpace(text, at + 1)];
    if (sign === "{" || sign === "[") {
      const empty = next === "}" || next === "]";
      depth += 1;
      out += empty ? sign : sign + newLine();
      if (empty) {
        depth -= 1;
        out += next;
        at = afterSpace(text, at + 1);
      }
    } else if (sign === "}" || sign === "]") {
      depth -= 1;
      out += newLine() + sign;
    } else if (sign === ",") out += sign + newLine();
    else if (sign === ":") out += ": ";
    else if (!SPACE.test(sign)) out += sign;
    at += 1;
  }
  return out;
}
