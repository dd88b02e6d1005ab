// All sets, worst first.

import { age, badge, calmly, fill, h, link, settle, table } from "./dom.js";
import { now, onChange, row, rows } from "./store.js";

// As the command line has it: the worst first.
const WORST = ["broken", "waiting", "degraded", "deleting", "paused", "updating", "starting", "stopped", "running"];

export function page(main) {
  const filter = h("input", { type: "search", id: "search", placeholder: "filter by name, state or reason", "aria-label": "filter sets" });
  const list = h("div");
  fill(main, h("div", { class: "title" }, h("h1", {}, "Sets ", h("small", {}, "worst first")), filter), list);
  const draw = () => {
    const text = filter.value.trim().toLowerCase();
    const all = [...rows("sets").values()].filter((one) => !text || JSON.stringify([one.namespace, one.name, one.state, one.why]).toLowerCase().includes(text));
    const rank = (one) => (WORST.indexOf(one.state) + 1) || WORST.length;
    all.sort((a, b) => rank(a) - rank(b) || a.namespace.localeCompare(b.namespace) || a.name.localeCompare(b.name));
    const shown = all.slice(0, 500);
    const autoscaled = shown.some((one) => one.autoscaled.length); // an empty column takes width from the reasons
    const titles = ["Namespace", "Name", "State", "Available", "Updated", "Scheduled", "Pods ready", "GPUs held", "Restarts", "Age", autoscaled && "Autoscaled", "Why"].filter(Boolean);
    settle(list, table(titles, shown.map((one) => [
      one.namespace, link(one.name, "set", one.namespace, one.name), badge(one.state), `${one.available}/${one.replicas}`, one.updated,
      `${one.scheduled}/${one.pods}`, `${one.ready}/${one.pods}`, `${one.held}/${one.asked}`, one.restarts + one.gangRestarts || "", age(one.created, now()),
      ...(autoscaled ? [one.autoscaled.join(", ")] : []), one.state === "running" ? one.why : link(one.cause || one.why || "why?", "why", one.namespace, one.name),
    ]), { caption: "PodCliqueSets, worst first", numeric: [3, 4, 5, 6, 7, 8, 9], wide: [titles.length - 1], empty: text ? "no set matches" : "no PodCliqueSets" }),
    all.length > shown.length && h("p", { class: "dim" }, `${all.length - shown.length} more; filter to see them`),
    (row("about", "unreadable") ?? []).length > 0 && h("p", { class: "dim" }, `you may not read ${row("about", "unreadable").join(", ")}`));
  };
  filter.addEventListener("input", draw);
  draw();
  const live = calmly(draw);
  const stop = onChange((names) => (names.has("sets") || names.has("about")) && live.draw());
  return () => {
    stop();
    live.stop();
  };
}

