// What if: a manifest, a change of scale, a drained node, tried on a copy of the cluster. Nothing is written.

import { ask } from "./api.js";
import { badge, fill, h, many, table } from "./dom.js";
import { Fleet } from "./picture.js";
import { spreads } from "./spreads.js";
import { rows, state, tell } from "./store.js";

function answer(found) {
  const gangs = found.gangs ?? [];
  return [
    table(["Gang", "Answer", "Pods", "New", "Nodes", "Score", "Where"], gangs.map((gang) => [
      gang.name, badge(gang.answer), `${gang.pods.length}/${gang.pods.length + (gang.unplaced ?? 0)}`, gang.moved ?? "",
      new Set(gang.pods.map((one) => one.node)).size, gang.score === null || gang.score === undefined ? "" : gang.score.toFixed(2), gang.where ?? "",
    ]), { caption: "What would happen", numeric: [2, 3, 4, 5], empty: "no gang of Grove is concerned" }),
    gangs.filter((gang) => gang.why).map((gang) => h("div", { class: "card" }, h("p", { class: "reason" }, `${gang.name}: ${gang.why}`),
      (gang.helps ?? []).length > 0 && [h("h3", {}, "Any one of these would help"), h("ul", { class: "helps" }, gang.helps.map((help, i) => h("li", {}, help, gang.commands?.[i] && h("pre", { tabindex: 0, "aria-label": "command" }, gang.commands[i]))))])),
    spreads(found.spreads),
    (found.headroom ?? []).map((line) => h("p", {}, line)),
    (found.preempted ?? []).length > 0 && h("p", { class: "error" }, `would be evicted for it: ${found.preempted.join(", ")}`),
    (found.others ?? []).length > 0 && h("ul", {}, found.others.map((one) => h("li", {}, `${one.namespace}/${one.pod}: ${one.note || (one.fits ? "fits on another node" : "")}`))),
    found.more !== null && found.more !== undefined && h("p", {}, `${many(found.more, "more base gang")} of it would fit after that`),
    (found.missing ?? []).map((line) => h("p", { class: "error" }, `its pods would not start: ${line}`)),
    (found.warnings ?? []).map((line) => h("p", {}, `Warning: ${line}`)),
    found.note && h("p", { class: "dim" }, found.note),
    (found.unreadable ?? []).length > 0 && h("p", { class: "dim" }, `you may not read ${found.unreadable.join(", ")}, so the answer is less exact`),
  ];
}

export function page(main) {
  const text = h("textarea", { id: "manifest", rows: 16, spellcheck: "false", placeholder: "paste a PodCliqueSet and what it needs, or drop a file here" });
  const names = [...rows("sets").keys()].sort();
  const scale = h("input", { id: "scale", placeholder: "chat/prefill=5", list: "sets" });
  const drain = h("input", { id: "drain", placeholder: "a node", list: "nodes" });
  const namespace = h("input", { id: "plan-namespace", value: state.namespace || names[0]?.split("/")[0] || "default" });
  const result = h("div", { "aria-live": "polite", id: "result" }, h("p", { class: "dim" }, "Does it fit now, where, and what does it evict? The answer appears here, and the picture below outlines its nodes."));
  const host = h("div");
  const go = async (asked) => {
    fill(result, h("p", { class: "dim" }, "Trying it on a copy of the cluster …"));
    try {
      const found = await ask("plan", { namespace: namespace.value.trim() || "default", ...asked });
      state.plan = found;
      tell("plan");
      fill(result, answer(found));
    } catch (error) {
      fill(result, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  text.addEventListener("dragover", (event) => event.preventDefault());
  text.addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (file && file.size < 1000000) text.value = await file.text();
  });
  const form = (label, input, make) => h("form", { onsubmit: (event) => { event.preventDefault(); go(make()); } },
    h("label", { for: input.id }, label), h("div", { class: "row" }, input, h("button", {}, "Try")));
  fill(main, h("div", { class: "title" }, h("h1", {}, "Plan ", h("small", {}, "Nothing is written."))), h("div", { class: "plan" },
    h("div", { class: "card" }, h("label", { for: "plan-namespace" }, "Namespace"), h("div", { class: "row" }, namespace),
      h("form", { onsubmit: (event) => { event.preventDefault(); go({ manifest: text.value }); } }, h("label", { for: "manifest" }, "A manifest"), text, h("div", { class: "row" }, h("button", { class: "main" }, "Try it"))),
      form("A change of scale", scale, () => ({ scale: [scale.value.trim()] })), form("A drained node", drain, () => ({ drain: [drain.value.trim()] })),
      h("datalist", { id: "sets" }, names.slice(0, 500).map((one) => h("option", { value: `${one.split("/")[1]}=` }))),
      h("datalist", { id: "nodes" }, [...rows("nodes").keys()].sort().slice(0, 500).map((one) => h("option", { value: one })))),
    h("div", {}, result, host)));
  const fleet = new Fleet(host, { small: true });
  if (state.plan) fill(result, answer(state.plan));
  return () => fleet.stop();
}
