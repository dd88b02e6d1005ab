// One set: its tree, what happened to it as a picture, and its events; drawn anew when its row changes.

import { ask } from "./api.js";
import { badge, fill, h, link, many, table } from "./dom.js";
import { onChange, row } from "./store.js";

const LANES = ["PodCliqueSet", "PodCliqueScalingGroup", "PodGang", "PodClique", "Pod"];

// `shut` has the names of branches that were closed by hand: they stay so when the tree is drawn anew.
function twig(one, namespace, open, shut) {
  const counts = one.kind === "Pod" ? "" : ` ${one.ready ?? 0}/${one.wanted ?? 0} ready`;
  const line = [
    badge(one.state), " ", h("b", {}, one.name), h("span", { class: "dim" }, counts),
    one.placementScore !== undefined && h("span", { class: "dim" }, ` score ${Number(one.placementScore).toFixed(2)}`),
    one.node && h("span", { class: "dim" }, ` on ${one.node}`),
    one.domains && h("span", { class: "dim" }, ` in ${one.domains.join(", ")}`),
    one.gang && [" ", link(one.gang, "gang", one.gang)],
    ["Pod", "PodClique", "PodCliqueScalingGroup"].includes(one.kind) && [" ", link("YAML", "object", one.kind, namespace, one.name)],
    one.why && h("span", { class: "why" }, ` ${one.why}`),
  ];
  const children = one.children ?? [];
  if (!children.length) return h("li", {}, h("span", { class: "leaf" }, line));
  const shown = shut.has(one.name) ? false : open || one.state !== "ready";
  const inner = h("ul", { class: "tree", hidden: !shown },
    children.map((child) => twig(child, namespace, children.length <= 8 && child.kind !== "Pod", shut)));
  const toggle = h("button", {
    type: "button", class: "toggle", "aria-expanded": String(shown), "aria-label": `parts of ${one.name}`,
    onclick: () => {
      inner.hidden = !inner.hidden;
      toggle.setAttribute("aria-expanded", String(!inner.hidden));
      toggle.textContent = inner.hidden ? "▸" : "▾";
      if (inner.hidden) shut.add(one.name);
      else shut.delete(one.name);
    },
  }, shown ? "▾" : "▸");
  return h("li", {}, toggle, " ", line, inner);
}

export function timeline(moments) {
  if (moments.length < 2) return h("p", { class: "dim" }, "no events yet");
  const times = moments.map((one) => new Date(one.at).getTime());
  const first = Math.min(...times), span = Math.max(1, Math.max(...times) - first);
  const lanes = LANES.filter((lane) => moments.some((one) => one.kind === lane));
  const width = 900, left = 150, row_ = 30, height = lanes.length * row_ + 30;
  const x = (time) => left + (width - left - 20) * ((time - first) / span);
  const marks = moments.map((one, index) => h("svg:circle", {
    cx: x(times[index]).toFixed(1), cy: lanes.indexOf(one.kind) * row_ + 18, r: one.warning ? 5 : 4, class: one.warning ? "warning" : "moment",
  }, h("svg:title", {}, `${new Date(one.at).toLocaleTimeString()} ${one.name}: ${one.reason} ${one.message}`)));
  const seconds = (part) => {
    const value = (span * part) / 1000;
    return value < 120 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
  };
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "timeline" },
    h("svg:svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img", "aria-label": `timeline of ${many(moments.length, "moment")} over ${seconds(1)}` },
      lanes.map((lane, index) => [
        h("svg:text", { x: 4, y: index * row_ + 22 }, lane),
        h("svg:line", { x1: left, x2: width - 20, y1: index * row_ + 18, y2: index * row_ + 18, class: "lane" }),
      ]),
      [0, 0.25, 0.5, 0.75, 1].map((part) => h("svg:text", { x: left + (width - left - 20) * part, y: height - 6, class: "tick", "text-anchor": part === 1 ? "end" : "start" }, part ? `+${seconds(part)}` : "0")),
      marks));
}

export function page(main, [namespace, name]) {
  const key = `${namespace}/${name}`;
  const head = h("div"), tree = h("div"), picture = h("div"), events = h("div");
  fill(main, h("h1", {}, name, " ", h("small", { class: "dim" }, namespace)), head, h("h2", {}, "Tree"), tree,
    h("h2", {}, "Timeline"), picture, h("h2", {}, "Events"), events);
  let asked = null, again = false;
  const shut = new Set();
  let last = "";
  const load = async () => {
    if (asked) {
      again = true;
      return;
    }
    asked = new AbortController();
    try {
      const grown = await ask("tree", { namespace, name }, asked.signal);
      fill(tree, h("ul", { class: "tree" }, twig(grown, namespace, true, shut)));
      const moments = await ask("events", { namespace, name }, asked.signal);
      fill(picture, timeline(moments));
      const latest = [...moments].sort((a, b) => new Date(b.at) - new Date(a.at)).slice(0, 100);
      fill(events, table(["When", "About", "What", ""], latest.map((one) => ({
        class: one.warning ? "warning" : "", cells: [new Date(one.at).toLocaleTimeString(), `${one.kind} ${one.name}`, one.reason, one.message],
      })), { caption: "Events, the latest first", empty: "no events" }));
    } catch (error) {
      if (error.name !== "AbortError") fill(tree, h("p", { class: "error", role: "alert" }, error.message));
    }
    asked = null;
    if (again) {
      again = false;
      setTimeout(load, 500);
    }
  };
  const draw = () => {
    const one = row("sets", key);
    fill(head, one ? [
      h("p", {}, badge(one.state), ` ${one.available}/${one.replicas} replicas available, ${one.ready}/${one.pods} pods ready, ${one.updated} updated`),
      one.state !== "running" && one.why && h("p", { class: "reason" }, one.why),
      h("p", {}, link("why", "why", namespace, name), " · ", link("YAML", "object", "PodCliqueSet", namespace, name)),
    ] : h("p", { class: "dim" }, `there is no PodCliqueSet ${key} here`));
  };
  draw();
  load();
  const stop = onChange((names) => {
    if (!names.has("sets")) return;
    const now = JSON.stringify(row("sets", key));
    if (now === last) return;
    last = now;
    draw();
    load();
  });
  return () => {
    stop();
    asked?.abort();
  };
}

