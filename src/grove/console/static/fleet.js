// The page of the fleet: the picture, its legend, what is chosen as text beside it, and how large a gang still fits.

import { colourOf, rankedSets } from "./colours.js";
import { badge, bar, calmly, fill, h, link, many, settle } from "./dom.js";
import { Fleet, sayings, swatch } from "./picture.js";
import { onChange, row, rows, state } from "./store.js";

const MOST_LISTED = 40, MOST_SETS = 8;
const SIGNS = ["free", "other", "held", "reserved", "broken", "cordoned", "does not answer"];
const SAID = { other: "other pods" };

export const units = () => ((row("fleet", "resource") ?? "").endsWith("/gpu") ? "GPUs" : row("fleet", "resource") ?? "");

const gangLink = (key, text = key.split("/")[1]) => link(text, "gang", ...key.split("/"));

// The colours of sets, each a button that shows all of it, and the signs. `only` leaves out signs that are not there.
export function legend(choose, only = false) {
  const sets = rankedSets();
  const named = new Set(sets.map((one) => one.split("/")[1])).size === sets.length;
  const there = new Set();
  if (only) {
    for (const one of rows("nodes").values()) {
      if (one[3]) there.add(one[3]);
      if (one[5]) there.add("broken");
      if (one[6]?.length) there.add("reserved");
      if (one[7]) there.add("held");
      if (one[4].some(([who]) => !row("gangs", who))) there.add("other");
    }
  }
  return h("div", { class: "legend", role: "group", "aria-label": "legend" },
    sets.slice(0, MOST_SETS).map((set) => h("button", {
      type: "button", "aria-pressed": String(state.chosen?.set === set), onclick: () => choose(state.chosen?.set === set ? null : { set }),
    }, h("span", { class: "swatch" }, swatch(colourOf(set))), named ? set.split("/")[1] : set)),
    sets.length > MOST_SETS && h("span", { class: "dim" }, `${sets.length - MOST_SETS} more sets`),
    SIGNS.filter((one) => !only || one === "free" || there.has(one)).map((one) => h("span", { class: "sign" }, h("span", { class: "swatch" }, swatch(one)), SAID[one] ?? one)),
    state.plan && h("span", { class: "sign" }, h("span", { class: "swatch" }, swatch("planned")), "planned"));
}

function aboutNode(name) {
  const one = row("nodes", name);
  if (!one) return h("p", { class: "dim" }, `node ${name} is gone`);
  const [path, total, used, , taken] = one;
  return h("section", {},
    h("h3", {}, name), h("p", { class: "dim" }, path.join(" / ")),
    h("p", {}, bar(used, total), ` ${used} of ${total} ${units()} in use`),
    sayings(one).length > 0 && h("p", {}, sayings(one).map((text) => [badge(text), " "])),
    h("ul", { class: "plain" }, taken.map(([who, count]) => h("li", {}, `${count} × `, row("gangs", who) ? gangLink(who) : who))),
    h("p", {}, link("YAML", "object", "Node", "-", name)));
}

// The state of a gang, which stands in the row of its set.
function stateOf(key) {
  const [namespace, name] = key.split("/");
  return row("sets", `${namespace}/${row("gangs", key)?.set}`)?.gangs?.[name] ?? "waiting";
}

function aboutGang(key) {
  const gang = row("gangs", key), [namespace, name] = key.split("/");
  if (!gang) return h("p", { class: "dim" }, `gang ${key} is gone`);
  const on = [...rows("nodes")].filter(([, one]) => one[4].some(([who]) => who === key));
  const held = [...rows("nodes")].filter(([, one]) => one[7] === key);
  const count = on.reduce((sum, [, one]) => sum + one[4].find(([who]) => who === key)[1], 0);
  const domains = new Set(on.map(([, one]) => one[0].at(-1)).filter(Boolean));
  return h("section", {},
    h("h3", {}, name, " ", badge(stateOf(key))),
    h("p", {}, `${count} ${units()} on ${many(on.length, "node")}`, domains.size > 0 && ` in ${[...domains].slice(0, 3).join(", ")}${domains.size > 3 ? " …" : ""}`),
    typeof gang.score === "number" && h("p", { class: "dim" }, `placement score ${gang.score.toFixed(2)}`),
    gang.message && h("p", { class: "reason" }, gang.message),
    held.length > 0 && h("p", {}, `${many(held.length, "node")} ${held.length === 1 ? "is" : "are"} held for it`),
    h("p", { class: "links" }, link(`set ${gang.set}`, "set", namespace, gang.set), link("why", "why", namespace, name), link("YAML", "object", "PodGang", namespace, name)),
    h("ul", { class: "plain" }, on.slice(0, 20).map(([node, one]) => h("li", {}, node, " ", h("span", { class: "dim" }, one[0].at(-1) ?? ""))),
      on.length > 20 && h("li", { class: "dim" }, `and ${on.length - 20} more`)));
}

function aboutSet(key) {
  const one = row("sets", key), [namespace, name] = key.split("/");
  const gangs = [...rows("gangs")].filter(([gang, of]) => gang.startsWith(`${namespace}/`) && of.set === name).map(([gang]) => gang);
  return h("section", {}, h("h3", {}, name, " ", one && badge(one.state)),
    one && h("p", {}, `${one.ready} of ${one.pods} pods ready, ${one.held} of ${one.asked} ${units()}`),
    one && one.state !== "running" && one.why && h("p", { class: "reason" }, one.why),
    h("p", { class: "links" }, link("tree and timeline", "set", namespace, name), link("why", "why", namespace, name)),
    h("ul", { class: "plain" }, gangs.slice(0, 30).map((gang) => h("li", {}, gangLink(gang), " ", badge(stateOf(gang))))));
}

// What stands beside the picture while nothing is chosen: how to use it, and who waits for a place.
function nothingChosen() {
  const waiting = [...rows("gangs")].filter(([, gang]) => gang.placed === false);
  return [h("p", { class: "dim" }, "Click a node to see its pods and their whole gangs. Wheel or + and − zoom, arrows pan, 0 shows all, Esc ends the selection."),
    waiting.length > 0 && h("section", {}, h("h3", {}, `${many(waiting.length, "gang")} ${waiting.length === 1 ? "waits" : "wait"}`),
      h("ul", { class: "plain" }, waiting.slice(0, 6).map(([key, gang]) => h("li", {}, gangLink(key), " ", link("why", "why", ...key.split("/")), h("div", { class: "dim few" }, gang.message)))))];
}

function levels() {
  const found = row("fleet", "levels") ?? [];
  if (!found.length) return h("p", { class: "dim" }, "no ClusterTopologyBinding: gangs cannot ask for racks or blocks yet");
  const whole = row("fleet", "total") ?? [0, 0, 0, 0], size = row("fleet", "size");
  const card = (title, free, text, share) => h("div", { class: "card level" }, h("h3", {}, title), h("p", { class: "large" }, free, h("small", {}, ` ${units()}`)),
    h("p", { class: "dim" }, text), share !== null && h("p", {}, bar(share, 1, `fragmentation ${Math.round(share * 100)} %`), h("span", { class: "dim" }, ` ${Math.round(share * 100)} % fragmented`)),
    share !== null && h("p", { class: "dim few" }, size ? `share of the free ${units()} that gangs of ${size} in one domain cannot use` : `no gang asks for ${units()}`));
  return h("div", { class: "cards" }, card("cluster", whole[3], `free on ${many(whole[0], "node")}, ${whole[2]} of ${whole[1]} in use`, null), found.map((one) => card(
    `one ${one.name}`, one.largestFree, `${one.best ? `in ${one.best}; ` : ""}${many(one.largestWhole, "whole node")} in one of ${one.domains}`, one.fragmentation)));
}

export function page(main, [namespace, name]) {
  const side = h("aside", { class: "panel", "aria-label": "what is chosen", "aria-live": "polite" });
  const list = h("div"), bottom = h("div"), host = h("div", { class: "fleet-host" });
  const search = h("input", { type: "search", placeholder: "find a node, a gang or a set", "aria-label": "find a node, a gang or a set", id: "search" });
  fill(main, h("div", { class: "title" }, h("h1", {}, "Fleet"), search), list, h("div", { class: "split" }, host, side),
    h("h2", {}, "How large a gang still fits"), bottom);
  const choose = (one) => {
    fleet.choose(one);
    settle(side, one ? [one.gang ? aboutGang(one.gang) : null, one.set ? aboutSet(one.set) : null, one.node ? aboutNode(one.node) : null,
      h("p", {}, h("button", { type: "button", onclick: () => choose(null) }, "show all"))]
      : nothingChosen());
    settle(fleet.legend, legend(choose));
  };
  const fleet = new Fleet(host, { chosen: choose });
  choose(namespace && name ? { gang: `${namespace}/${name}` } : null);
  const find = () => {
    const text = search.value.trim().toLowerCase();
    if (!text) return fill(list);
    const like = (table) => [...rows(table).keys()].filter((one) => one.toLowerCase().includes(text)).slice(0, MOST_LISTED);
    const button = (title, one, node) => h("button", { type: "button", onclick: () => { choose(one); if (node) fleet.show(node); } }, title);
    const sets = like("sets"), gangs = like("gangs"), nodes = like("nodes");
    return fill(list, h("div", { class: "chips", role: "group", "aria-label": "found" },
      sets.map((key) => button(`set ${key}`, { set: key })), gangs.map((key) => button(`gang ${key}`, { gang: key })), nodes.map((node) => button(node, { node }, node)),
      !nodes.length && !gangs.length && !sets.length && h("span", { class: "dim" }, "nothing of that name")));
  };
  search.addEventListener("input", find);
  const redraw = () => {
    const unreadable = row("about", "unreadable") ?? [];
    settle(bottom, unreadable.includes("nodes") ? h("p", {}, "You may not list nodes, so there is no fleet to show.") : levels(),
      unreadable.includes("pods") && h("p", {}, "You may not list pods, so the page does not show where they run."),
      state.plan && h("p", {}, "Outlined: where the plan would put pods. ", h("button", {
        type: "button", onclick: () => { state.plan = null; fleet.light(); choose(state.chosen); redraw(); },
      }, "forget the plan")));
  };
  redraw();
  const live = calmly(() => choose(state.chosen), 250);
  let known = rows("gangs").size;
  const stop = onChange((names, keys) => {
    if (names.has("fleet") || names.has("about")) redraw();
    const others = rows("gangs").size !== known || keys === null;
    known = rows("gangs").size;
    if (others || names.has("gangs") || (names.has("nodes") && state.chosen)) live.draw();
  });
  return () => {
    stop();
    live.stop();
    fleet.stop();
    state.chosen = null;
  };
}
