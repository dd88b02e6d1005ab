// The life of a set and the progress of its update as pictures, from values that the server worked out.

import { bar, h, many } from "./dom.js";

const WIDTH = 1000, LEFT = 210, RIGHT = 16, BAR = 7, ROW = 16, LETTER = 7.6, MOST_NAMED = 2;
const WORDS = { created: "created", placed: "placed", ready: "ready", scaled: "scaled", updated: "updated", failed: "failed", lost: "lost", restarted: "restarted", refused: "no place" };
const time = (at) => new Date(at).getTime();

function long(ms) {
  const seconds = ms / 1000;
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

// The word of a moment: how often it happened and, of failures, what failed.
function named({ kind, texts, whats }) {
  const counts = new Map();
  for (const what of whats.filter(Boolean)) counts.set(what, (counts.get(what) ?? 0) + 1);
  const times = (word, count) => (count > 1 ? `${word} ×${count}` : word);
  if (!counts.size) return times(WORDS[kind], texts.length);
  const first = [...counts].slice(0, MOST_NAMED).map(([what, count]) => times(what, count)).join(", ");
  return `${WORDS[kind]}: ${first}${counts.size > MOST_NAMED ? " …" : ""}`;
}

// Moments that would stand on each other are one, with a count; each gets a line on which its word fits.
function gathered(marks, x) {
  const found = [];
  for (const one of marks) {
    const at = x(time(one.at)), near = found.find((other) => other.kind === one.kind && Math.abs(other.x - at) < 26);
    if (near) { near.texts.push(one.text); near.whats.push(one.what); }
    else found.push({ kind: one.kind, x: at, texts: [one.text], whats: [one.what] });
  }
  const ends = [];
  for (const one of found.sort((a, b) => a.x - b.x)) {
    one.word = named(one);
    const wide = one.word.length * LETTER + 14;
    one.end = one.x + wide > WIDTH;
    const from = one.end ? one.x - wide : one.x;
    one.line = ends.findIndex((end) => end < from);
    if (one.line < 0) one.line = ends.length;
    ends[one.line] = from + wide;
  }
  return [found, ends.length];
}

// `only` is how much of the time to show: all of it, or the start until everything was ready for the first time.
export function timeline(history, { start = false } = {}) {
  const { lanes, marks } = history, spans = lanes.flatMap((lane) => lane.spans);
  const times = [...marks.map((one) => time(one.at)), ...spans.flatMap((one) => [one.created, one.placed, one.started, one.ready].filter(Boolean).map(time))];
  if (!times.length) return h("p", { class: "dim" }, "there are no events");
  const first = Math.min(...times), ready = marks.filter((one) => one.kind === "ready").map((one) => time(one.at));
  const firstReady = ready.length ? Math.min(...ready) : Math.max(...times);
  const last = start ? firstReady : Math.max(...times), span = Math.max(1000, (last - first) * 1.06);
  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * Math.min(1, (at - first) / span);
  const [signs, lines] = gathered(marks.filter((one) => time(one.at) <= first + span), x);
  const top = lines * ROW + 10;
  let y = top;
  const drawn = lanes.map((lane) => {
    const shown = lane.spans.slice(0, 6), begun = y;
    const bars = shown.map((one) => {
      const at = y;
      y += BAR + 2;
      const piece = (from, to, kind, text) => from && to > time(from) && h("svg:rect", { x: x(time(from)).toFixed(1), width: Math.max(1, x(to) - x(time(from))).toFixed(1), y: at, height: BAR, rx: 2, class: kind },
        h("svg:title", {}, `${many(one.pods, "pod")}: ${text}`));
      const end = first + span, placed = one.placed ? time(one.placed) : end, up = one.ready ? time(one.ready) : end;
      return [piece(one.created, Math.min(placed, end), "wait", "waits for a place"), piece(one.placed, Math.min(up, end), "start", "starts"),
        piece(one.ready, end, one.failed ? "lost" : "ready", one.failed ? "ready again, after a restart" : "ready")];
    });
    y += Math.max(0, 12 - shown.length * (BAR + 2)) + 6;
    const name = lane.clique.length > 32 ? `…${lane.clique.slice(-31)}` : lane.clique;
    return [h("svg:text", { x: LEFT - 10, y: begun + 8, class: "name", "text-anchor": "end" }, name), bars];
  });
  const height = y + 22;
  return h("svg:svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "picture", role: "img", "aria-label": `timeline of ${many(lanes.length, "clique")} over ${long(span)}: ${signs.map((one) => one.word).join(", ")}` },
    [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const at = LEFT + (WIDTH - LEFT - RIGHT) * part;
      return [h("svg:line", { x1: at, x2: at, y1: top - 4, y2: y, class: "grid" }),
        h("svg:text", { x: at, y: height - 6, "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, part ? `+${long(span * part)}` : "0")];
    }),
    signs.map((one) => [h("svg:line", { x1: one.x, x2: one.x, y1: one.line * ROW + 8, y2: y, class: `mark ${one.kind}` })]), drawn,
    signs.map((one) => h("svg:g", {}, h("svg:title", {}, one.texts.slice(0, 12).join("\n")),
      h("svg:circle", { cx: one.x, cy: one.line * ROW + 8, r: 3.5, class: `sign ${one.kind}` }),
      h("svg:text", { x: one.x + (one.end ? -8 : 8), y: one.line * ROW + 12, class: `sign-text ${one.kind}`, "text-anchor": one.end ? "end" : "start" }, one.word))));
}

export function timelineLegend() {
  const piece = (kind, text) => h("span", { class: "sign" }, h("span", { class: "swatch picture" }, h("svg:svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, h("svg:rect", { y: 2, width: 12, height: 8, rx: 2, class: kind }))), text);
  return h("div", { class: "legend" }, piece("wait", "waits for a place"), piece("start", "starts"), piece("ready", "ready"), piece("lost", "ready again, after a restart"));
}

// One line a clique, one square a pod: filled when it is up to date.
export function rollout(found) {
  const roles = found.roles ?? [];
  return [
    h("p", { class: "dim" }, found.sentence || (roles.length ? "every pod is up to date" : "no pods")),
    (found.lines ?? []).map((line) => h("p", { class: "dim" }, line)),
    h("div", { class: "rollout" }, roles.map((role) => [
      h("b", {}, role.clique),
      role.pods > 80 ? bar(role.updated, role.pods, `${role.updated} of ${role.pods} up to date`)
        : h("div", { class: "pieces", role: "img", "aria-label": `${role.updated} of ${role.pods} up to date` }, Array.from({ length: role.pods }, (_, index) => h("span", { class: index < role.updated ? "piece new" : "piece" }))),
      h("span", { class: "dim" }, `${role.updated}/${role.pods} `, h("code", {}, [...(role.oldImages ?? []).map((one) => `${one} → `), role.image].join(""))),
    ])),
    (found.down ?? []).filter((one) => !(found.sentence ?? "").includes(one.name)).map((one) => h("p", { class: "why" }, `${one.name} is ${one.serves ? "being updated" : "down"}${one.waitsFor ? `, waits for ${one.waitsFor}` : ""}`)),
  ];
}
