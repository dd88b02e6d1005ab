// Why a set or a gang does not run: a path of layers from the outside in, the evidence, and what would help.

import { ask } from "./api.js";
import { badge, fill, h, link } from "./dom.js";
import { onChange, row, rows } from "./store.js";

const LAYERS = [
  ["operator", "the operator sees the set"], ["create", "its pods may be created"], ["quota", "quotas allow it"],
  ["gate", "it is its turn"], ["scheduler", "the scheduler runs"], ["gang", "the gang fits the cluster"],
  ["domain", "a domain holds it"], ["node", "nodes take its pods"], ["dependency", "what it starts after is ready"], ["pod", "its pods start"],
];

function layers(verdict) {
  const at = LAYERS.findIndex(([name]) => name === verdict.level);
  const running = verdict.state === "running";
  return h("ol", { class: "layers", "aria-label": "from the outside in" }, LAYERS.map(([name, text], index) => {
    const kind = running || (at >= 0 && index < at) ? "passed" : index === at ? "stopped" : "beyond";
    const word = { passed: "yes", stopped: "here", beyond: "not reached" }[kind];
    return h("li", { class: kind, "aria-current": kind === "stopped" ? "step" : undefined },
      h("b", {}, name), " ", h("span", {}, text), " ", h("span", { class: "dim" }, word),
      kind === "stopped" && h("p", { class: "reason" }, verdict.reason));
  }));
}

function one(verdict) {
  const advice = verdict.advice ?? [];
  const sentence = (help) => (help.inPlace ? help.text : `delete it and apply it again with ${help.text}`);
  return h("section", { class: "verdict" },
    h("h2", {}, verdict.gang, " ", badge(verdict.state)),
    !LAYERS.some(([name]) => name === verdict.level) && verdict.reason && h("p", { class: "reason" }, verdict.reason),
    layers(verdict),
    (verdict.evidence ?? []).length > 0 && [h("h3", {}, "Evidence"), h("ul", {}, verdict.evidence.map((line) => h("li", {}, line)))],
    verdict.next && h("p", {}, h("b", {}, "Next: "), verdict.next),
    advice.length > 0 && [
      h("h3", {}, "Any one of these would help"),
      h("ul", { class: "helps" }, advice.map((help) => h("li", {}, sentence(help), help.path && h("span", { class: "dim" }, ` ${help.path}`),
        help.command && h("pre", { tabindex: 0, "aria-label": "command" }, help.command)))),
      h("p", { class: "dim" }, "each tried out on a copy of the cluster"),
    ]);
}

export function page(main, [namespace, name]) {
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Asking …"));
  const set = row("sets", `${namespace}/${name}`) ? name : row("gangs", `${namespace}/${name}`)?.set;
  fill(main, h("h1", {}, "Why ", name), h("p", {}, set && link(`the set ${set}`, "set", namespace, set)), body);
  let busy = false, again = false;
  const load = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const found = await ask("why", { namespace, name });
      const gangs = found.gangs ?? [];
      const trouble = gangs.filter((gang) => gang.state !== "running");
      fill(body, found.note && h("p", {}, found.note),
        found.state && trouble.length !== 1 && h("p", { class: "reason" }, badge(found.state), ` ${found.reason}`, found.next && h("span", { class: "dim" }, ` · ${found.next}`)),
        (trouble.length ? trouble : gangs).map(one), !gangs.length && !found.state && h("p", {}, "no gangs"));
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(load, 1000);
    }
  };
  load();
  const mine = () => JSON.stringify([...rows("gangs")].filter(([key, gang]) => key === `${namespace}/${name}` || gang.set === name));
  let before = mine();
  return onChange((names) => {
    if (!names.has("gangs")) return;
    const now = mine();
    if (now !== before) {
      before = now;
      load();
    }
  });
}
