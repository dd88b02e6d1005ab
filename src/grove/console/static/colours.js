// One hue a set, a shade a gang. People who see few hues can distinguish them (six are Okabe and Ito's);
// what is no gang (held, reserved, broken) has a pattern or a sign besides its colour.

import { row, rows } from "./store.js";

const HUES = [
  [0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0], [125, 75, 25], [140, 60, 220],
];

const LIGHT = {
  ground: "#f4f6f8", boxes: ["#eaeef2", "#f3f6f8", "#ffffff"], edge: "#d3dae1", text: "#17212b", dim: "#5b6773", node: "#ffffff",
  nodeEdge: "#c2cbd4", free: "#e2e8ed", other: "#8d98a3", mark: "#45505b", broken: "#b3261e", planned: "#8a5a00", plan: "#ffe2a8", chosen: "#111820",
  veil: "rgb(244 246 248 / 0.72)",
};
const DARK = {
  ground: "#0f1417", boxes: ["#161d22", "#1b2329", "#212a31"], edge: "#323d46", text: "#e7ebee", dim: "#9ba7b3", node: "#2a343c",
  nodeEdge: "#44515c", free: "#3a4650", other: "#88949f", mark: "#c3ccd4", broken: "#ff7b72", planned: "#ffd24d", plan: "#6b5514", chosen: "#ffffff",
  veil: "rgb(15 20 23 / 0.72)",
};

const night = matchMedia("(prefers-color-scheme: dark)");

export function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : night.matches;
}

export const theme = () => (dark() ? DARK : LIGHT);

let order = new Map();

// The sets that have gangs, in the order of their hues: by name, so that neighbours in a list differ. If there are more
// sets than hues, those that ask for the most GPUs come first, so that a small set does not share the hue of a large one.
export function rankedSets() {
  const sets = [...new Set([...rows("gangs")].map(([key, gang]) => `${key.split("/")[0]}/${gang.set}`))].sort();
  const asked = (set) => row("sets", set)?.asked ?? 0;
  return sets.length > HUES.length ? sets.sort((a, b) => asked(b) - asked(a)) : sets;
}

export function colourSets(names) {
  order = new Map(names.map((name, index) => [name, index]));
}

// `set` and `gang` with their namespaces.
export function colourOf(set, gang = set) {
  const index = order.get(set);
  if (index === undefined) return theme().other;
  const [r, g, b] = HUES[index % HUES.length];
  const numbers = (gang.slice(set.length).match(/\d+/g) ?? ["0"]).map(Number);
  const step = numbers.reduce((sum, one) => sum * 3 + one, 0) % 5;
  const towards = dark() ? 255 : 0;
  const mix = (one) => Math.round(one + (towards - one) * step * 0.1);
  return `rgb(${mix(r)} ${mix(g)} ${mix(b)})`;
}
