// One set: its state, its update, what happened to it as a picture, its tree and its events; drawn again when it changes.

import { ask } from "./api.js";
import { badge, bar, byName, fill, h, inTurn, link, settle, table } from "./dom.js";
import { rollout, timeline, timelineLegend } from "./history.js";
import { spreads } from "./spreads.js";
import { now, onChange, row } from "./store.js";
import { trends } from "./trends.js";

// `shut` has the names of branches that were closed or opened by hand: they stay so when the tree is drawn again.
// A reason stands once in the tree, on the outermost entry that has it, and in one short line: `reasons` has those above.
const SHORT = 80, short = (text) => (text.length > SHORT ? `${text.slice(0, SHORT - 1)}…` : text);

function entry(one, namespace, open, shut, reasons = new Set()) {
  const pod = one.kind === "Pod", why = reasons.has(one.why) ? "" : one.why;
  reasons.add(why);
  const line = [
    badge(one.state), " ", h("b", {}, one.name), h("span", { class: "dim" }, pod ? "" : ` ${one.ready ?? 0}/${one.wanted ?? 0}`),
    one.node && h("span", { class: "dim" }, ` on ${one.node}`),
    !pod && one.domains && h("span", { class: "dim" }, ` in ${one.domains.join(", ")}`),
    one.placementScore !== undefined && h("span", { class: "dim" }, ` score ${Number(one.placementScore).toFixed(2)}`),
    !pod && one.gang && one.kind !== "PodClique" && [" ", link("on the fleet", "gang", namespace, one.gang)],
    ["Pod", "PodClique", "PodCliqueScalingGroup"].includes(one.kind) && [" ", link("YAML", "object", one.kind, namespace, one.name)],
    why && h("span", { class: "why", title: why }, ` ${short(why)}`),
  ];
  const children = one.children ?? [];
  if (!children.length) return h("li", {}, h("span", { class: "leaf" }, line));
  const shown = shut.has(one.name) ? shut.get(one.name) : open || one.state !== "ready";
  const inner = h("ul", { class: "tree", hidden: !shown },
    children.map((child) => entry(child, namespace, children.length <= 8 && !["Pod", "PodClique"].includes(child.kind), shut, reasons)));
  const toggle = h("button", {
    type: "button", class: "toggle", "aria-expanded": String(shown), "aria-label": `parts of ${one.name}`,
    onclick: () => {
      inner.hidden = !inner.hidden;
      toggle.setAttribute("aria-expanded", String(!inner.hidden));
      toggle.textContent = inner.hidden ? "▸" : "▾";
      shut.set(one.name, !inner.hidden);
    },
  }, shown ? "▾" : "▸");
  return h("li", {}, toggle, line, inner);
}

function numbers(one) {
  const card = (title, part, whole) => h("div", { class: "card" }, h("h3", { class: "dim" }, title), h("p", { class: "large" }, part, h("small", {}, ` of ${whole}`)), bar(part, whole));
  return h("div", { class: "cards" }, card("Replicas available", one.available, one.replicas), card("Pods ready", one.ready, one.pods),
    card("Available and up to date", one.updated, one.replicas), card("GPUs held", one.held, one.asked));
}

function eventTable(moments) {
  const latest = [...moments].sort((a, b) => new Date(b.at) - new Date(a.at)).slice(0, 100);
  return table(["When", "About", "What", ""], latest.map((one) => ({
    class: one.warning ? "warning" : "", cells: [new Date(one.at).toLocaleTimeString(), `${one.kind} ${one.name}`, one.reason, one.message],
  })), { caption: "Events, the latest first", empty: "no events", wide: [3] });
}

function scalers(lines) {
  if (!lines.length) return h("p", { class: "dim" }, "no autoscaler changes its replicas");
  return table(["Autoscaler", "Replicas", "Limits", "Metrics", "Why it does not change them"], lines.map((one) => [
    one.name, one.desired && one.desired !== one.current ? `${one.current} → ${one.desired}` : one.current, `${one.least}–${one.most}`, one.measures.join(", "), one.why,
  ]), { caption: "Autoscalers", wide: [4] });
}

// The last lines of its pods, read when they are asked for.
function logs(namespace, name, link_) {
  const body = h("div");
  const read = async () => {
    fill(body, h("p", { class: "dim" }, "Reading …"));
    try {
      const found = await ask("logs", { namespace, name: part.value.trim() || name });
      fill(body, found.pods.map((one) => [h("h3", {}, one.pod), h("pre", { tabindex: 0 }, one.lines.join("\n") || "it wrote nothing")]),
        found.more > 0 && h("p", { class: "dim" }, `${found.more} more pods; name a part, such as ${name}/GROUP/0`));
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  const part = h("input", { value: name, "aria-label": "set, or a part of it", size: 32 });
  return [h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    read();
  } }, part, h("button", {}, "Show the last lines"), link_), body];
}

export function page(main, [namespace, name]) {
  const key = `${namespace}/${name}`, shut = new Map();
  const head = h("div"), tree = h("div", { class: "card" }), picture = h("div"), events = h("div", { class: "events" }), update = h("div", { class: "card" });
  const starts = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const pressed = starts.getAttribute("aria-pressed") !== "true";
    starts.setAttribute("aria-pressed", String(pressed));
    paint();
  } }, "only the start");
  const scaling = h("div"), logsLink = h("span");
  const moments = () => (history?.marks ?? []).filter((one) => ["scaled", "updated", "failed", "lost", "restarted", "refused"].includes(one.kind)).map((one) => ({ ...one, at: new Date(one.at).getTime() / 1000 }));
  const linked = (found) => {
    const address = (found.logs ?? "").replaceAll("{namespace}", encodeURIComponent(namespace)).replaceAll("{name}", encodeURIComponent(name)).replaceAll("{pod}", "");
    fill(logsLink, address && h("a", { href: address, rel: "noopener", target: "_blank" }, "all logs"), " ", found.grafana && h("a", { href: found.grafana, rel: "noopener", target: "_blank" }, "Grafana"));
  };
  let history = null;
  const gang = h("select", { "aria-label": "of which gang", onchange: () => load.run() });
  const gangs = (one) => settle(gang, h("option", { value: "" }, "the whole set"), Object.keys(one.gangs ?? {}).sort(byName).map((found) => h("option", { value: found, selected: gang.value === found }, found)));
  const time = trends(key, { marks: moments, linked });
  fill(main, head, h("h2", {}, "Rollout"), update, h("h2", {}, "Over time"), time.element, scaling, h("div", { class: "title" }, h("h2", {}, "Timeline"), gang, starts), picture, h("h2", {}, "Tree"), tree, h("h2", {}, "Events"), events, h("h2", {}, "Logs"), logs(namespace, name, logsLink));
  let asked = null, last = "";
  const paint = () => history && fill(picture, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "timeline" },
    h("div", { class: "wide-picture" }, timeline(history, { start: starts.getAttribute("aria-pressed") === "true" }))), timelineLegend());
  const load = inTurn(async () => {
    asked = new AbortController();
    const about = { namespace, name, now: new Date(now()).toISOString() };
    const into = async (element, question, make, more = {}) => {
      try {
        const found = await ask(question, { ...about, ...more }, asked.signal);
        const drawn = make(found);
        if (drawn) fill(element, drawn);
      } catch (error) {
        if (error.name !== "AbortError") fill(element, h("p", { class: "error", role: "alert" }, error.message));
      }
    };
    await into(tree, "tree", (found) => [h("ul", { class: "tree" }, entry(found, namespace, true, shut)), spreads(found.spreads), (found.headroom ?? []).map((line) => h("p", {}, line))]);
    await into(update, "rollout", rollout);
    await into(picture, "history", (found) => {
      history = found;
      paint();
      time.draw();
    }, { gang: gang.value });
    await into(scaling, "autoscalers", scalers);
    await into(events, "events", eventTable);
    asked = null;
  }, 500);
  const draw = () => {
    const one = row("sets", key);
    if (one) gangs(one);
    fill(head, h("div", { class: "title" }, h("h1", {}, name, " ", h("small", {}, namespace), " ", one && badge(one.state)),
      h("p", { class: "links" }, link("why", "why", namespace, name), link("YAML", "object", "PodCliqueSet", namespace, name))),
    one ? [one.state !== "running" && one.why && h("p", { class: "reason" }, one.why), numbers(one),
      one.autoscaled.length > 0 && h("p", { class: "dim" }, `autoscaled: ${one.autoscaled.join(", ")}`)] : h("p", { class: "dim" }, `there is no PodCliqueSet ${key} here`));
  };
  draw();
  load.run();
  const stop = onChange((names) => {
    if (!names.has("sets")) return;
    const shown = JSON.stringify(row("sets", key));
    if (shown === last) return;
    last = shown;
    draw();
    load.run();
  });
  return () => {
    stop();
    load.stop();
    time.stop();
    asked?.abort();
  };
}
