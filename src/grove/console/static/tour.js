// The guided tour: chapters and sentences beside the fleet, the pace, and buttons to break things oneself.

import { act } from "./api.js";
import { badge, bar, fill, h, keep, link } from "./dom.js";
import { legend } from "./fleet.js";
import { Fleet } from "./picture.js";
import { onChange, row, rows, state } from "./store.js";

const SPEEDS = [[0.5, "½×"], [1, "1×"], [2, "2×"], [4, "4×"]];
const STANDS_STILL = "The cluster goes on, and it is yours: break something, or start again.";

// Lines of an explanation: sentences, then what would help as a list.
function told({ gang, lines }) {
  if (!lines) return null;
  const helps = lines.filter((one) => one.startsWith("- ")), why = lines.filter((one) => !one.startsWith("- "));
  return h("div", { class: "told" }, why.map((one) => h("p", { class: one.endsWith(":") ? "lead" : undefined }, one)),
    helps.length > 0 && h("ul", {}, helps.map((one) => h("li", {}, one.slice(2)))), gang && h("p", {}, link(`why ${gang} waits, layer by layer`, "why", "default", gang)));
}

// Something worth breaking when nothing is chosen: a node that runs a gang and answers.
function victim() {
  const busy = [...rows("nodes")].filter(([, one]) => !one[3] && one[4].some(([who]) => row("gangs", who)));
  return busy.at(-1)?.[0];
}

export function page(main) {
  const steps = h("ol", { class: "steps", "aria-label": "chapters" }), player = h("div", { class: "player", role: "group", "aria-label": "pace" });
  const clock = h("span", { class: "dim clock" }), chapter = h("section", { class: "card chapter", "aria-live": "polite" });
  const notes = h("ol", { class: "notes", "aria-label": "what happened", tabindex: 0 });
  const breaking = h("div", { class: "breaking", role: "group", "aria-label": "break something" });
  const sets = h("div", { class: "cards" }), host = h("div"), problem = h("p", { class: "error", role: "alert" });
  const subtitle = h("p", { class: "dim" });
  fill(main, h("div", { class: "title" }, h("div", {}, h("h1", {}, "The tour"), subtitle), h("div", { class: "player" }, player, clock)), steps,
    h("div", { class: "tour" },
      h("div", {}, chapter, h("section", { class: "card happens" }, h("h3", {}, "What happens"), notes)),
      h("div", {}, sets, host, h("section", { class: "card" }, h("h3", {}, "Break it yourself"),
        h("p", { class: "dim" }, "Nothing here is real but Grove itself: its operator and its scheduler run in this process, on a cluster in memory."), problem, breaking))));
  const choose = (one) => {
    fleet.choose(one);
    draw();
  };
  const fleet = new Fleet(host, { small: true, chosen: choose });
  const button = (label, asked, more = {}) => h("button", {
    type: "button", ...more, onclick: () => act(asked).then(() => fill(problem), (error) => fill(problem, error.message)),
  }, label);
  const breaks = (what, about, asked) => button([h("b", {}, what), h("small", {}, about)], asked);

  const drawPlayer = (over, paused, speed) => keep(player, [over, paused, speed], () => [
    button(paused ? "▶ Play" : "❚❚ Pause", { verb: paused ? "play" : "pause" }, { class: "main" }),
    h("span", { class: "speeds", role: "group", "aria-label": "speed" }, SPEEDS.map(([value, text]) => button(text, { verb: "speed", speed: value }, { "aria-pressed": String(value === speed), title: `speed ${value}` }))),
    over === "playing" && button("Next chapter ›", { verb: "next" }), button("Start again", { verb: "restart" })]);
  const drawBreaking = () => {
    const { node: picked, gang } = state.chosen ?? {}, node = picked ?? victim(), lost = [...rows("nodes")].filter(([, one]) => one[3]);
    const groups = row("story", "groups") ?? [], [set, group, replicas] = groups[0] ?? [];
    const target = gang ?? row("nodes", node)?.[4].find(([who]) => row("gangs", who))?.[0];
    keep(breaking, [node, target, groups, lost.map(([name, one]) => [name, one[3]])], () => [
      target && breaks("Fail a pod", `of ${target.split("/")[1]}`, { verb: "failPod", of: target.split("/")[1] }),
      node && !row("nodes", node)?.[3] && [breaks("Fail a node", node, { verb: "failNode", node }), breaks("Drain a node", node, { verb: "drain", node })],
      set && [breaks("Scale out", `${set} ${group}: ${replicas} to ${replicas + 1}`, { verb: "scale", set, group, replicas: replicas + 1 }),
        replicas > 1 && breaks("Scale in", `${set} ${group}: ${replicas} to ${replicas - 1}`, { verb: "scale", set, group, replicas: replicas - 1 }),
        breaks("Roll out an update", `a new image for ${set}`, { verb: "update", set, image: `lmsysorg/sglang:v0.6.${Date.now() % 1000}` })],
      breaks("Add four nodes", "a rack more", { verb: "addNodes", count: 4 }),
      lost.slice(0, 4).map(([name, one]) => breaks("Bring it back", `${name}, ${one[3]}`, { verb: one[3] === "cordoned" ? "uncordon" : "restoreNode", node: name }))]);
  };
  const draw = () => {
    const at = row("story", "chapter") ?? -1, all = row("story", "chapters") ?? [], over = row("story", "state") ?? "playing";
    const failed = over === "failed" ? [...rows("notes").values()].find((one) => one.kind === "failed")?.text : "";
    fill(subtitle, row("story", "title") ?? "");
    fill(clock, `${(row("story", "time") ?? 0).toFixed(0)} s of cluster time`);
    drawPlayer(over, Boolean(row("story", "paused")), row("story", "speed") ?? 1);
    keep(steps, [all, at, over], () => all.map((one, index) => h("li", {
      "aria-current": index === at && over === "playing" ? "step" : undefined, class: index < at || over === "over" ? "passed" : "",
    }, one.title)));
    const explained = row("story", "explained") ?? {};
    keep(chapter, [all, at, over, explained], () => (over === "playing" ? [
      h("p", { class: "number-of" }, at < 0 ? "The curtain rises …" : `Chapter ${at + 1} of ${all.length}`), h("h2", {}, all[at]?.title ?? ""), h("p", {}, all[at]?.text ?? ""), told(explained)]
      : [h("h2", {}, over === "over" ? "The story is over" : "The story cannot go on"), failed && h("p", { class: "reason" }, failed), h("p", {}, STANDS_STILL), over !== "over" && told(explained)]));
    drawBreaking();
    const said = [...rows("notes")].sort((a, b) => Number(b[0]) - Number(a[0])).slice(0, 60);
    keep(notes, [said[0], said.length], () => said.map(([, one]) => h("li", { class: one.kind }, h("time", {}, `${one.at_s.toFixed(1)} s`), one.text)));
    const known = [...rows("sets").values()];
    keep(sets, known.map(({ name, state: now, ready, pods, held, asked }) => [name, now, ready, pods, held, asked]), () => known.map((one) => h("div", { class: "card set-card" },
      h("div", { class: "head" }, h("b", {}, link(one.name, "set", one.namespace, one.name)), badge(one.state)),
      h("p", { class: "dim" }, bar(one.ready, one.pods, `${one.ready} of ${one.pods} pods ready`), ` ${one.ready}/${one.pods} pods, ${one.held} GPUs`))));
    keep(fleet.legend, [[...rows("gangs").values()].map((one) => one.set), [...rows("nodes").values()].filter((one) => one[3] || one.length > 5).length, state.chosen, document.documentElement.dataset.theme ?? ""], () => legend(choose, true));
  };
  draw();
  const stop = onChange((names) => ["story", "notes", "sets", "nodes", "gangs", "theme"].some((one) => names.has(one)) && draw());
  return () => {
    stop();
    fleet.stop();
    state.chosen = null;
  };
}
