// Asking again and again: in step while somebody looks, not at all while nobody does, more rarely while answers take
// long, and more and more rarely while the server does not answer.

import { text } from "/assets/dom.js";

const WAIT_MS_MAX = 30_000;
// Of the time, asking may take one part in so many.
const REST_PARTS = 10;

const button = document.getElementById("live");
const label = document.getElementById("live-text");
let paused = false;
let lost = false;
const waiting = new Set();

function show() {
  button.classList.toggle("paused", paused);
  button.classList.toggle("lost", lost && !paused);
  button.setAttribute("aria-pressed", String(!paused));
  text(label, paused ? "Paused" : lost ? "No answer" : "Live");
}

function wake() {
  for (const go of [...waiting]) go();
}

export function togglePause() {
  paused = !paused;
  show();
  if (!paused) wake();
}

// Asks once, at once, whatever the wait; also while paused.
export function refresh() {
  for (const go of [...waiting]) go(true);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !paused) wake();
});
button.addEventListener("click", togglePause);

function rest(ms, signal) {
  return new Promise((done) => {
    let timer;
    const go = (anyway) => {
      if (!anyway && (paused || document.hidden)) return;
      clearTimeout(timer);
      waiting.delete(go);
      done();
    };
    waiting.add(go);
    timer = setTimeout(go, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); waiting.delete(go); done(); }, { once: true });
  });
}

// Does `work` now and every so often until `signal` says that nobody needs it any more. What it throws the first time is
// the caller's.
export async function repeat(work, everyMs, signal) {
  const timed = async () => {
    const began = performance.now();
    await work();
    return Math.max(everyMs, (performance.now() - began) * REST_PARTS);
  };
  let waitMs = await timed();
  lost = false;
  show();
  (async () => {
    while (!signal.aborted) {
      await rest(waitMs, signal);
      if (signal.aborted) return;
      try {
        waitMs = await timed();
        lost = false;
      } catch (problem) {
        if (signal.aborted) return;
        waitMs = Math.max(Math.min(waitMs * 2, WAIT_MS_MAX), everyMs);
        lost = true;
        if (problem.status === undefined) console.error(problem);
      }
      show();
    }
  })();
}
