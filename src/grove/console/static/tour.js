// The guided tour: chapters and sentences beside the fleet, the pace, and buttons to break things oneself.

import { act } from "./api.js";
import { badge, fill, h, link } from "./dom.js";
import { Fleet } from "./fleet.js";
import { onChange, row, rows, state } from "./store.js";

export function page(main) {
  const chapters = h("ol", { class: "chapters", "aria-label": "chapters" });
  const text = h("div", { class: "chapter", "aria-live": "polite" });
  const notes = h("ol", { class: "notes", reversed: true, "aria-label": "what happened", tabindex: 0 });
  const controls = h("div", { class: "row", role: "group", "aria-label": "pace" });
  const breaking = h("div", { class: "chips", role: "group", "aria-label": "break something" });
  const sets = h("div", { class: "row" });
  const host = h("div", { class: "fleet-host" });
  const problem = h("p", { class: "error", role: "alert" });
  fill(main, h("h1", {}, "The tour"), h("div", { class: "tour" },
    h("div", {}, controls, chapters, text, h("h2", {}, "Break it yourself"), breaking, problem, h("h2", {}, "What happens"), notes),
    h("div", {}, sets, host)));
  const fleet = new Fleet(host, {
    small: true,
    chosen: (one) => {
      state.chosen = one;
      draw();
      fleet.draw();
    },
  });
  const button = (label, asked, title) => h("button", {
    type: "button", title, onclick: () => act(asked).then(() => fill(problem), (error) => fill(problem, error.message)),
  }, label);
  const draw = () => {
    const chapter = row("story", "chapter") ?? -1, all = row("story", "chapters") ?? [], over = row("story", "state");
    const paused = row("story", "paused"), speed = row("story", "speed") ?? 1;
    fill(controls, button(paused ? "play" : "pause", { verb: paused ? "play" : "pause" }),
      button("slower", { verb: "speed", speed: speed / 2 }), button("faster", { verb: "speed", speed: speed * 2 }),
      h("span", { class: "dim" }, ` speed ${speed}, ${(row("story", "time") ?? 0).toFixed(0)} s of cluster time`));
    fill(chapters, all.map((one, index) => h("li", { "aria-current": index === chapter ? "step" : undefined, class: index < chapter ? "passed" : "" }, one.title)));
    const explained = row("story", "explained") ?? {};
    fill(text, h("p", {}, over === "over" ? "The story is over; the cluster goes on. Break something." : all[chapter]?.text),
      explained.lines && h("ul", { class: "reason" }, explained.lines.map((one) => h("li", {}, one))));
    const { node, gang } = state.chosen ?? {};
    const set = [...rows("sets").values()].find((one) => one.pods)?.name;
    const broken = node && row("nodes", node)?.[3];
    fill(breaking,
      node ? [broken ? button(`bring ${node} back`, { verb: broken === "cordoned" ? "uncordon" : "restoreNode", node }) : [
        button(`fail node ${node}`, { verb: "failNode", node }), button(`drain ${node}`, { verb: "drain", node })]]
        : h("span", { class: "dim" }, "click a node first, or: "),
      gang && button(`fail a pod of ${gang}`, { verb: "failPod", of: gang }),
      set && [button("scale prefill out", { verb: "scale", set, group: "prefill", replicas: 6 }), button("scale prefill in", { verb: "scale", set, group: "prefill", replicas: 2 }),
        button("new image", { verb: "update", set, image: `example/engine:${Date.now() % 1000}` })],
      button("4 more nodes", { verb: "addNodes", count: 4 }));
    const told = [...rows("notes")].sort((a, b) => Number(b[0]) - Number(a[0])).slice(0, 60);
    fill(notes, told.map(([, one]) => h("li", { class: one.kind, value: undefined }, h("span", { class: "dim" }, `${one.at_s.toFixed(1)} s `), one.text)));
    fill(sets, [...rows("sets").values()].map((one) => h("span", {}, link(one.name, "set", one.namespace, one.name), " ", badge(one.state), ` ${one.ready}/${one.pods} pods `)));
  };
  draw();
  const stop = onChange((names) => ["story", "notes", "sets", "nodes"].some((one) => names.has(one)) && draw());
  return () => {
    stop();
    fleet.stop();
  };
}
