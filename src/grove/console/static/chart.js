// Figures over time as pictures: lines that keep their value until the next point, and bars for what is counted.

import { h } from "./dom.js";

const WIDTH = 460, HEIGHT = 150, LEFT = 44, RIGHT = 10, TOP = 10, BOTTOM = 22, CELLS = 40;

export function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return `${Math.round(100 * value)} %`;
  if (unit === "s") return value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`;
  return Number.isInteger(value) || value >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

// What a figure was between two times: the value at the start, and the points after it.
function within(points, since, until) {
  const found = points.filter(([at]) => at > since && at <= until);
  const before = points.filter(([at]) => at <= since).at(-1);
  return before ? [[since, before[1]], ...found] : found;
}

// Of a figure that counts: by how much it grew in each cell of time.
export function grown(points, since, until, cells = CELLS) {
  const sums = new Array(cells).fill(0), inside = within(points, since, until);
  inside.forEach(([at, value], index) => {
    const last = index ? inside[index - 1][1] : value;
    if (value === null || last === null || value <= last) return;
    sums[Math.min(cells - 1, Math.floor(((at - since) / (until - since)) * cells))] += value - last;
  });
  return sums;
}

function nice(top) {
  if (top <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 3, 4, 6, 8, 10].map((one) => one * size).find((one) => one >= top);
}

function hour(at) {
  return new Date(1000 * at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

// `figures` share one axis; `marks` are moments with a text.
export function chart(title, figures, { since, until, marks = [] }) {
  const counts = figures[0].counts, unit = figures[0].unit;
  const lines = figures.map((one) => ({ ...one, inside: within(one.points, since, until), bars: counts ? grown(one.points, since, until) : [] }));
  const values = lines.flatMap((one) => (counts ? one.bars : one.inside.map(([, value]) => value))).filter((value) => value !== null);
  const top = unit === "%" ? 1 : nice(Math.max(0, ...values));
  const x = (at) => LEFT + ((WIDTH - LEFT - RIGHT) * (Math.min(until, at) - since)) / (until - since);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(value, top) / top);
  const path = (points) => {
    let text = "", last = null;
    for (const [at, value] of points) {
      if (value === null) text += last === null ? "" : `H${x(at).toFixed(1)}`;
      else text += last === null ? `M${x(at).toFixed(1)} ${y(value).toFixed(1)}` : `H${x(at).toFixed(1)}V${y(value).toFixed(1)}`;
      last = value;
    }
    return last === null ? text : `${text}H${x(until).toFixed(1)}`;
  };
  const said = lines.map((one) => (counts ? `${one.bars.reduce((sum, value) => sum + value, 0)} ${one.title}`
    : `${one.title} ${shown(one.inside.at(-1)?.[1], unit)} now, at most ${shown(Math.max(0, ...one.inside.map(([, value]) => value ?? 0)), unit)}`));
  const near = marks.filter((one) => one.at > since && one.at <= until);
  const wide = (WIDTH - LEFT - RIGHT) / CELLS;
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("b", {}, title), h("span", { class: "dim" }, lines.map((one, index) => h("span", { class: "sign" },
      h("span", { class: `key line-${index}` }), ` ${one.title} `, h("b", {}, counts ? one.bars.reduce((sum, value) => sum + value, 0) : shown(one.inside.at(-1)?.[1], unit)))))),
    h("svg:svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "picture", role: "img", "aria-label": `${title}: ${[...said, ...near.map((one) => one.text)].join(", ")}` },
      [0, 0.5, 1].map((part) => [h("svg:line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * part), y2: y(top * part), class: "grid" }),
        h("svg:text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, part && top * part < 1 && !unit ? "" : shown(top * part, unit))]),
      [0, 0.5, 1].map((part) => h("svg:text", { x: LEFT + (WIDTH - LEFT - RIGHT) * part, y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][2 * part] }, hour(since + (until - since) * part))),
      lines.map((one, index) => (counts
        ? one.bars.map((value, cell) => value > 0 && h("svg:rect", { x: (LEFT + cell * wide).toFixed(1), width: (wide - 1).toFixed(1), y: y(value).toFixed(1), height: (HEIGHT - BOTTOM - y(value)).toFixed(1), class: `bar-${index}` }))
        : h("svg:path", { d: path(one.inside), class: `line line-${index}` }))),
      near.map((one) => h("svg:g", {}, h("svg:title", {}, one.text), h("svg:line", { x1: x(one.at), x2: x(one.at), y1: TOP, y2: HEIGHT - BOTTOM, class: `mark ${one.kind}` }),
        h("svg:circle", { cx: x(one.at), cy: TOP, r: 3.5, class: `sign ${one.kind}` })))));
}
