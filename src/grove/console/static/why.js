// Why a set or a gang does not run: a path of layers from the outside in, the evidence, and what would help.

import { ask } from "./api.js";
import { badge, fill, h, inTurn, link } from "./dom.js";
import { onChange, row, rows } from "./store.js";

const LAYERS = [
  ["operator", "the operator sees the set"], ["create", "its pods may be created"], ["quota", "quotas allow it"],
  ["gate", "it is its turn"], ["reference", "what its pods refer to exists"], ["scheduler", "the scheduler runs"], ["gang", "the gang fits the cluster"],
  ["domain", "a domain holds it"], ["node", "nodes take its pods"], ["dependency", "what it starts after is ready"], ["pod", "its pods start"],
];
const MOST_NAMED = 4;
const SAID = { passed: ["✓", "yes"], stopped: ["✕", "stops here"], beyond: ["", "not reached"] };

function layers(verdict) {
  const at = LAYERS.findIndex(([name]) => name === verdict.level), running = verdict.state === "running" || !verdict.level;
  return h("ol", { class: "layers card", "aria-label": "from the outside in" }, LAYERS.map(([name, text], index) => {
    const kind = running || (at >= 0 && index < at) ? "passed" : index === at ? "stopped" : "beyond", [sign, word] = SAID[kind];
    return h("li", { class: kind, "aria-current": kind === "stopped" ? "step" : undefined }, h("span", { class: "dot", "aria-hidden": "true" }, sign),
      h("span", { class: "state" }, word), h("b", {}, name), " ", h("span", {}, text), kind === "stopped" && h("p", { class: "reason" }, verdict.reason));
  }));
}

const pasted = (step) => step.command && h("pre", { tabindex: 0, "aria-label": "command" }, step.command);

// Gangs with the same reason and the same next step are shown together; the first of them has the evidence.
function alike(verdicts) {
  const found = new Map();
  for (const verdict of verdicts) {
    const key = JSON.stringify([verdict.state, verdict.level, verdict.reason, verdict.next]).replaceAll(verdict.gang, "");
    found.set(key, [...(found.get(key) ?? []), verdict]);
  }
  return [...found.values()];
}

function together(gangs) {
  const names = gangs.slice(0, MOST_NAMED).map(({ gang }) => gang).join(", ");
  return gangs.length > MOST_NAMED ? `${names} and ${gangs.length - MOST_NAMED} more` : names;
}

function one(verdicts) {
  const [verdict] = verdicts;
  const advice = verdict.advice ?? [], evidence = verdict.evidence ?? [], isLayer = LAYERS.some(([name]) => name === verdict.level);
  const sentence = (help) => (help.inPlace ? help.text : `delete it and apply it again with ${help.text}`);
  return h("section", { class: "verdict" },
    h("h2", {}, together(verdicts), " ", badge(verdict.state)),
    h("div", {}, !isLayer && verdict.reason && h("p", { class: "reason" }, verdict.reason), (isLayer || !verdict.level) && layers(verdict)),
    h("div", {},
      verdict.next && h("div", { class: "card" }, h("h3", {}, "Next"), h("p", {}, verdict.next), pasted(verdict)),
      advice.length > 0 && [
        h("h2", {}, "Any one of these would help ", h("small", {}, "each tried out on a copy of the cluster")),
        h("ul", { class: "helps card" }, advice.map((help) => h("li", {}, h("b", {}, sentence(help)), help.path && h("div", { class: "dim" }, h("code", {}, help.path)),
          pasted(help)))),
      ],
      evidence.length > 0 && [h("h2", {}, "Evidence"), h("ul", { class: "helps card" }, evidence.map((line) => h("li", {}, line)))]));
}

export function page(main, [namespace, name]) {
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Asking …"));
  const gang = row("gangs", `${namespace}/${name}`), set = row("sets", `${namespace}/${name}`) ? name : gang?.set;
  fill(main, h("div", { class: "title" }, h("h1", {}, "Why ", name, " ", h("small", {}, namespace)), h("p", { class: "links" },
    set && link(`set ${set}`, "set", namespace, set), gang && link("on the fleet", "gang", namespace, name))), body);
  const load = inTurn(async () => {
    try {
      const found = await ask("why", { namespace, name });
      const gangs = found.gangs ?? [], trouble = gangs.filter((gang_) => gang_.state !== "running");
      const isSaid = trouble.length === 1 && (trouble[0].next ?? "") === (found.next ?? ""); // its one trouble has it all
      fill(body, found.note && h("p", {}, found.note),
        found.state && !isSaid && h("p", {}, badge(found.state), ` ${found.reason}`, found.next && h("span", { class: "dim" }, ` · ${found.next}`), pasted(found)),
        alike(trouble.length ? trouble : gangs).map(one), !gangs.length && !found.state && h("p", {}, "no gangs"));
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
  }, 1000);
  load.run();
  // Of a pod that fails the row of its set says so, not the row of its gang.
  const mine = () => JSON.stringify([row("sets", `${namespace}/${set}`), ...[...rows("gangs")].filter(([key, other]) => key === `${namespace}/${name}` || (key.startsWith(`${namespace}/`) && other.set === name))]);
  let before = mine();
  const stop = onChange((names) => {
    if (!names.has("gangs") && !names.has("sets")) return;
    const now = mine();
    if (now !== before) {
      before = now;
      load.run();
    }
  });
  return () => {
    stop();
    load.stop();
  };
}
