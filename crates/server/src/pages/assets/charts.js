// Charts, drawn by hand in the size they are shown.

import { h, replace, s, text } from "/assets/dom.js";
import { hourMinute } from "/assets/time.js";

const HEIGHT = 160;
const SPANS_MS = [2, 5, 15].map((minutes) => minutes * 60_000);
const EDGE = { left: 52, right: 8, top: 10, bottom: 20 };

// The next round number.
function round(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Points as the path of a line; a value that is missing breaks it.
function path(points, x, y) {
  let pen = "M";
  let out = "";
  for (const [at, value] of points) {
    if (value === null || value === undefined) {
      pen = "M";
      continue;
    }
    out += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  }
  return out;
}

// Points that stand alone, which a line cannot show.
function lone(points) {
  const is = (point) => (point?.[1] ?? null) !== null;
  return points.filter((point, index) => is(point) && !is(points[index - 1]) && !is(points[index + 1]));
}

// As much as there is to show, in round steps.
function spanOf(data, end) {
  const first = Math.min(...data.flatMap((points) => points.slice(0, 1).map(([at]) => at)), end);
  return SPANS_MS.find((span) => end - first <= span) ?? SPANS_MS.at(-1);
}

// A chart of lines over time. `series` is a list of { name }; `update` takes the same number of lists of [ms, value].
export function lines({ label, series, shown }) {
  const svg = s("svg", { class: "chart", role: "img", "aria-label": label });
  const values = series.map(() => h("span", {}));
  const legend = h("div", { class: "legend" }, series.map(({ name }, index) => h("span", {}, s("svg", { viewBox: "0 0 14 10", "aria-hidden": "true" }, s("rect", { class: `f${index + 1}`, y: 3, width: 14, height: 4, rx: 2 })), `${name} `, values[index])));
  let data = series.map(() => []);
  let hover = null;
  let scale = null;

  function readOut() {
    const at = hover === null ? Infinity : hover;
    data.forEach((points, index) => {
      const seen = points.filter(([, value]) => value !== null && value !== undefined);
      const point = hover === null ? seen.at(-1) : seen.reduce((best, next) => (best === null || Math.abs(next[0] - at) < Math.abs(best[0] - at) ? next : best), null);
      text(values[index], point ? shown(point[1]) : "–");
    });
  }

  function draw() {
    const width = svg.clientWidth || 600;
    const end = Math.max(...data.flatMap((points) => points.slice(-1).map(([at]) => at)), 0) || Date.now();
    const spanMs = spanOf(data, end);
    const start = end - spanMs;
    const top = round(Math.max(...data.flatMap((points) => points.filter(([at]) => at >= start).map(([, value]) => value ?? 0)), 0));
    const x = (at) => EDGE.left + ((at - start) / spanMs) * (width - EDGE.left - EDGE.right);
    const y = (value) => HEIGHT - EDGE.bottom - (value / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    scale = { start, width, spanMs };
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const rules = [0, top / 2, top].map((value) => [s("line", { class: "rule", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }), s("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value))]);
    const step = spanMs / 5 >= 60_000 ? spanMs / 5 : 60_000;
    const times = [];
    for (let at = Math.ceil(start / step) * step; at <= end; at += step) times.push(s("text", { x: x(at), y: HEIGHT - 4, "text-anchor": "middle" }, hourMinute(at)));
    const drawn = data.map((points, index) => {
      const seen = points.filter(([at]) => at >= start);
      return [s("path", { class: `line s${index + 1}`, d: path(seen, x, y) }), lone(seen).map(([at, value]) => s("circle", { class: `f${index + 1}`, cx: x(at), cy: y(value), r: 2.5 }))];
    });
    const cross = hover !== null && s("line", { class: "cross", x1: x(hover), x2: x(hover), y1: EDGE.top, y2: HEIGHT - EDGE.bottom });
    replace(svg, rules, times, drawn, cross || null);
    readOut();
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    hover = scale.start + ((event.clientX - box.left - EDGE.left) / (scale.width - EDGE.left - EDGE.right)) * scale.spanMs;
    draw();
  });
  svg.addEventListener("pointerleave", () => {
    hover = null;
    draw();
  });
  new ResizeObserver(draw).observe(svg);
  return {
    node: h("div", {}, svg, legend),
    update(next) {
      data = next;
      draw();
    },
  };
}
