// Figures over time: asked for once, then continued from the rows that the page gets anyway.

import { series } from "./api.js";
import { chart } from "./chart.js";
import { calmly, fill, h, link, settle, table } from "./dom.js";
import { now, onChange, row, rows, state } from "./store.js";

const RANGES = [[900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];
const FLEET = [["GPUs", "used", "total"], ["Gangs that wait", "waiting"], ["Placements", "placements"], ["Gang restarts", "restarts"]];
const SET = [
  ["Pods", "ready", "pods"], ["Replicas", "available", "replicas"], ["Requests", "grove_requests_waiting", "grove_requests_running"],
  ["Caches and GPUs", "grove_kv_cache_usage", "grove_gpu_utilization"], ["Latency", "grove_ttft_p95_seconds", "grove_tpot_p95_seconds"],
  ["Container restarts", "restarts"], ["Gang restarts", "gangRestarts"],
];
const LISTED = ["grove_requests_waiting", "grove_kv_cache_usage", "grove_gpu_utilization", "grove_ttft_p95_seconds"];
const current = (key) => (key === "fleet" ? row("figures", key) : row("sets", key) && { ...row("sets", key), ...row("engines", key) });

// Adds what the rows say now to what is known of the past.
function extend(figures, key) {
  const values = current(key);
  for (const one of values ? figures : []) {
    const value = values[one.name] ?? null;
    if (one.points.at(-1)?.[1] !== value) one.points.push([now() / 1000, value]);
  }
}

// The charts of the fleet or of one set. `marks` gives moments to draw; returns the element and how to end.
export function trends(key, { marks = () => [], linked = () => {} } = {}) {
  const body = h("div", { class: "charts" }), note = h("p", { class: "dim" });
  let last = 3600, figures = [], over = false;
  const choose = h("div", { class: "speeds", role: "group", "aria-label": "how far back" });
  const buttons = () => fill(choose, RANGES.map(([seconds, text]) => h("button", { type: "button", "aria-pressed": String(seconds === last), onclick: () => {
    last = seconds;
    buttons();
    load();
  } }, text)));
  const draw = () => {
    const until = now() / 1000, groups = key === "fleet" ? FLEET : SET, drawn = [];
    for (const [title, ...names] of groups) {
      const found = names.map((name) => figures.find((one) => one.name === name)).filter(Boolean);
      const quiet = found.every((one) => one.counts && one.points.length < 2);
      if (found.length && !(quiet && key !== "fleet")) drawn.push(chart(title, found, { since: until - last, until, marks: marks() }));
    }
    settle(body, drawn.length ? drawn : h("p", { class: "dim" }, "no figures yet"));
  };
  const load = async () => {
    try {
      const found = await series(state.namespace, key, last);
      if (over) return;
      figures = found.figures;
      linked(found);
      const engines = figures.some((one) => one.name.startsWith("grove_"));
      fill(note, found.note || (key === "fleet" || engines ? "" : "No figures of engines: grove metrics does not run, or you may not read custom.metrics.k8s.io."));
      extend(figures, key);
      draw();
    } catch (error) {
      if (!over) fill(note, error.message);
    }
  };
  buttons();
  load();
  const live = calmly(draw, 1000), tables = key === "fleet" ? ["figures"] : ["sets", "engines"];
  const stop = onChange((names) => {
    if (!tables.some((name) => names.has(name))) return;
    extend(figures, key);
    live.draw();
  });
  const moves = setInterval(live.draw, 15000); // the axis goes on; nothing is asked for
  return { element: h("div", { class: "trends" }, choose, body, note), draw: live.draw, stop: () => {
    over = true;
    stop();
    live.stop();
    clearInterval(moves);
  } };
}

export function page(main) {
  const list = h("div"), grafana = h("p", { class: "links" });
  const fleet = trends("fleet", { linked: (found) => fill(grafana, found.grafana && h("a", { href: found.grafana, rel: "noopener", target: "_blank" }, "Grafana")) });
  fill(main, h("div", { class: "title" }, h("h1", {}, "Over time ", h("small", {}, "the fleet")), grafana), fleet.element, h("h2", {}, "Engines now"), list);
  const draw = () => {
    const found = [...rows("engines").entries()].sort(([, a], [, b]) => (b[LISTED[0]] ?? 0) - (a[LISTED[0]] ?? 0)).slice(0, 200);
    settle(list, table(["Set", "Requests that wait", "KV cache", "GPU use", "Time to first token, p95"], found.map(([key, one]) => [
      link(key, "set", ...key.split("/")), one[LISTED[0]] ?? "", percent(one[LISTED[1]]), percent(one[LISTED[2]]), one[LISTED[3]] === undefined ? "" : `${Math.round(1000 * one[LISTED[3]])} ms`,
    ]), { caption: "Figures of engines, the longest queue first", numeric: [1, 2, 3, 4], empty: "no figures of engines" }));
  };
  const percent = (share) => (share === undefined ? "" : `${Math.round(100 * share)} %`);
  draw();
  const live = calmly(draw, 1000), stop = onChange((names) => names.has("engines") && live.draw());
  return () => {
    fleet.stop();
    stop();
    live.stop();
  };
}
