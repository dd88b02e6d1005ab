// The fleet on a canvas: zones, blocks, racks and nodes. From afar a node is a square in its gangs' colours, near by it
// shows every GPU. Everything that moves a picture only copies tiles (tiles.js); what is chosen or planned is drawn over it.

import { CELL, arrange, within } from "./arrange.js";
import { colourOf, colourSets, rankedSets, theme } from "./colours.js";
import { fill, h, many } from "./dom.js";
import { onChange, row, rows, state } from "./store.js";
import { Tiles } from "./tiles.js";

const HEAD = 10, NEAR = 15, NAMED = 64, MOST_ZOOM = 24;
const NOTHING = [[], 0, 0, "", []];

// What of a node is whose, in the order it is drawn: gangs and other pods, what is reserved, what is free, what is broken.
export function shares([, total, used, note, taken, broken = 0, reserved = [], heldFor = ""]) {
  const kept = reserved.reduce((sum, [, count]) => sum + count, 0);
  return [
    ...taken.map(([who, count]) => [who, count]), ["reserved", kept],
    [heldFor ? "held" : "free", Math.max(0, total - used - kept)], ["broken", broken],
  ].filter(([, count]) => count > 0);
}

export class Fleet {
  constructor(host, { small = false, chosen = () => {} } = {}) {
    this.chosen = chosen;
    this.small = small;
    this.canvas = h("canvas", { tabindex: 0, role: "img", class: small ? "fleet small" : "fleet", "aria-label": "the fleet" });
    this.canvas.fleet = this; // for developer tools
    this.hint = h("div", { class: "hint", "aria-hidden": "true", hidden: true });
    const button = (label, text, go) => h("button", { type: "button", "aria-label": label, title: label, onclick: go }, text);
    this.legend = h("div", { class: "grow" });
    host.append(h("div", { class: "stage" }, this.canvas, this.hint), h("div", { class: "under" }, this.legend, h("div", { class: "zoom", role: "group", "aria-label": "zoom" },
      button("nearer", "+", () => this.zoom(1.4)), button("farther", "−", () => this.zoom(1 / 1.4)), button("show all", "⤢", () => this.all()))));
    this.to = theme();
    this.view = { x: 0, y: 0, scale: 0 };
    this.size = { width: 0, height: 0 };
    this.colours = new Map();
    this.lit = [];
    this.tiles = new Tiles((...part) => this.part(...part));
    this.listen();
    this.stop = onChange((names, keys) => {
      if (["nodes", "gangs", "plan", "theme"].some((one) => names.has(one))) this.refresh(names, keys);
    });
    this.refresh(new Set(["nodes", "gangs"]), null);
  }

  // What changed since: a look, or the shape of the fleet. `keys` says of which rows; null is of all.
  refresh(names, keys) {
    if (names.has("gangs") || names.has("theme")) {
      const known = [...rows("gangs").keys()].join();
      if (known !== this.known || names.has("theme")) {
        this.known = known;
        this.to = theme();
        colourSets(rankedSets());
        this.colours.clear();
        this.patterns = null;
        this.tiles.spoil();
      }
    }
    if (names.has("nodes")) this.count(keys?.get("nodes") ?? null);
    this.light();
    const [nodes, all, used] = row("fleet", "total") ?? [0, 0, 0];
    this.canvas.setAttribute("aria-label", `${many(nodes, "node")}, ${used} of ${all} ${row("fleet", "resource") ?? "GPUs"} in use`);
    this.draw();
  }

  count(keys) {
    const nodes = rows("nodes");
    const moved = (name) => {
      const path = nodes.get(name)?.[0].join("/");
      return path === undefined || path !== this.paths?.get(name);
    };
    if (!keys || !this.layout || [...keys].some(moved)) return this.arrange();
    for (const name of keys) {
      const at = this.layout.cells.get(name), [, total, used] = nodes.get(name);
      this.tiles.touch(at.x - 1, at.y - 1, CELL + 2, CELL + 2);
      if (total === at.total && used === at.used) continue;
      for (const box of this.above.get(name)) {
        box.used += used - at.used;
        box.total += total - at.total;
        this.tiles.touch(box.x, box.y, box.w, HEAD);
      }
      Object.assign(at, { used, total });
    }
    return undefined;
  }

  arrange() {
    const nodes = rows("nodes"), { width } = this.size, most = innerHeight * (this.small ? 0.5 : 0.6);
    this.paths = new Map([...nodes].map(([name, one]) => [name, one[0].join("/")]));
    this.layout = arrange(nodes, width ? width / Math.max(300, most) : 1.6);
    if (width) { // no higher than what there is to see
      const height = Math.max(260, Math.min(most, ((width - 24) / Math.max(1, this.layout.w)) * this.layout.h + 24));
      this.canvas.style.height = `${Math.round(height)}px`;
    }
    this.above = new Map();
    const open = [];
    for (const box of this.layout.boxes) {
      open.length = box.depth - 1;
      open.push(box);
      Object.assign(box, { used: 0, total: 0 });
      for (const name of box.nodes) this.above.set(name, [...open]);
    }
    for (const [name, at] of this.layout.cells) {
      const [, total, used] = nodes.get(name);
      Object.assign(at, { used, total });
      if (!this.above.has(name)) this.above.set(name, []);
      for (const box of this.above.get(name)) {
        box.used += used;
        box.total += total;
      }
    }
    this.tiles.forget();
    if (!this.view.touched) this.view.scale = 0;
  }

  // The nodes of what is chosen, and of a plan.
  light() {
    const one = state.chosen, nodes = rows("nodes");
    const has = one?.gang ? (who) => who === one.gang : one?.set ? (who) => this.setOf(who) === one.set : null;
    this.lit = has ? [...nodes].filter(([, node]) => node[4].some(([who]) => has(who)) || (one.gang && node[7] === one.gang)).map(([name]) => name) : [];
    this.planned = state.plan ? new Set(state.plan.gangs?.flatMap((gang) => gang.pods.map((pod) => pod.node)) ?? []) : null;
  }

  setOf(gang) {
    const one = row("gangs", gang);
    return one ? `${gang.split("/")[0]}/${one.set}` : null;
  }

  fit() {
    const { width, height } = this.size, edge = 12;
    const scale = Math.max(0.02, Math.min((width - 2 * edge) / Math.max(1, this.layout.w), (height - 2 * edge) / Math.max(1, this.layout.h), 6));
    this.view = { scale, x: (width - this.layout.w * scale) / 2, y: (height - this.layout.h * scale) / 2, touched: false };
  }

  all() {
    this.view.scale = 0;
    this.view.touched = false;
    this.draw();
  }

  choose(one) {
    state.chosen = one;
    this.light();
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.canvas.isConnected) return this.stop();
      if (!this.size.width || !this.layout) return undefined;
      const began = performance.now();
      this.frame();
      this.canvas.dataset.frame = (performance.now() - began).toFixed(1);
      if (rows("nodes").size) this.canvas.dataset.first ??= performance.now().toFixed(0);
      return undefined;
    });
  }

  frame() {
    this.nodes = rows("nodes");
    const { width, height } = this.size, ratio = devicePixelRatio || 1, c = this.canvas.getContext("2d", { alpha: false });
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    if (!this.view.scale) this.fit();
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = this.to.ground;
    c.fillRect(0, 0, width, height);
    if (this.tiles.draw(c, this.view, width, height, ratio)) this.draw();
    this.over(c, width, height);
  }

  // What is chosen stands out of a veil; what is planned has an outline.
  over(c, width, height) {
    const { scale } = this.view, x = Math.round(this.view.x), y = Math.round(this.view.y), to = this.to, side = CELL * scale;
    const cells = (names) => names.map((name) => [name, this.layout.cells.get(name)]).filter(([, at]) => at
      && x + at.x * scale < width && y + at.y * scale < height && x + at.x * scale + side > 0 && y + at.y * scale + side > 0);
    const outline = (at, colour, wide) => {
      c.strokeStyle = colour;
      c.lineWidth = wide;
      c.strokeRect(x + at.x * scale - 1, y + at.y * scale - 1, side + 2, side + 2);
    };
    if (HEAD * scale * 0.6 < 7.5) this.corners(c, x, y, scale, to);
    if (this.lit.length) {
      c.fillStyle = to.veil;
      c.fillRect(0, 0, width, height);
      const near = cells(this.lit), rects = new Map();
      for (const [name, at] of near) this.cell(c, rects, name, x + at.x * scale, y + at.y * scale, side);
      paintAll(c, rects);
      for (const [name, at] of near) {
        this.signs(c, name, x + at.x * scale, y + at.y * scale, side);
        if (side > 4) outline(at, to.chosen, Math.min(2, side / 8));
      }
    }
    if (this.planned) for (const [, at] of cells([...this.planned])) outline(at, to.planned, Math.max(2, Math.min(4, side / 7)));
    if (state.chosen?.node) for (const [, at] of cells([state.chosen.node])) outline(at, to.chosen, 2.5);
  }

  // From so far that names do not fit into boxes, the broadest have them in a corner.
  corners(c, x, y, scale, to) {
    const broad = this.layout.boxes.filter((box) => box.depth === 1);
    if (broad.length > 60) return;
    c.font = `600 12px ${FONT}`;
    c.textBaseline = "alphabetic";
    for (const box of broad) {
      const wide = c.measureText(box.name).width + 10;
      if (wide > box.w * scale || box.leaf) continue;
      c.fillStyle = to.node;
      c.fillRect(x + box.x * scale, y + box.y * scale, wide, 17);
      c.fillStyle = to.text;
      c.fillText(box.name, x + box.x * scale + 5, y + box.y * scale + 13);
    }
  }

  // One tile: boxes first, then all rectangles of one colour together, then signs and names.
  part(c, x, y, w, h, scale) {
    const to = this.to, side = CELL * scale, rects = new Map();
    c.fillStyle = to.ground;
    c.fillRect(x * scale, y * scale, w * scale, h * scale);
    c.textBaseline = "alphabetic";
    for (const box of this.layout.boxes) {
      if (box.x > x + w || box.y > y + h || box.x + box.w < x || box.y + box.h < y || box.w * scale < 5) continue;
      this.box(c, box, scale, to);
    }
    const here = [...within(this.layout, x, y, w, h)];
    for (const [name, at] of here) this.cell(c, rects, name, at.x * scale, at.y * scale, side);
    paintAll(c, rects);
    for (const [name, at] of here) this.signs(c, name, at.x * scale, at.y * scale, side);
  }

  box(c, box, scale, to) {
    const left = box.x * scale, top = box.y * scale, w = box.w * scale, hh = box.h * scale, font = Math.min(14, HEAD * scale * 0.6);
    c.beginPath();
    c.roundRect(left, top, w, hh, Math.min(7, 1.6 * scale));
    c.fillStyle = to.boxes[box.leaf ? 2 : Math.min(1, box.depth - 1)];
    c.fill();
    c.strokeStyle = to.edge;
    c.lineWidth = 1;
    c.stroke();
    if (font < 7.5 || w < 24) return;
    c.font = `${box.leaf ? 400 : 600} ${font.toFixed(1)}px ${FONT}`;
    c.fillStyle = to.dim;
    const room = w - 8 * Math.min(1, scale), base = top + HEAD * scale * 0.72, text = box.short, wide = c.measureText(text).width;
    c.fillText(text, left + 5 * scale, base, Math.max(8, room - 5 * scale));
    const count = `${box.used}/${box.total}`, more = c.measureText(count).width;
    if (wide + more + 12 * scale + 6 > w) return;
    c.font = `400 ${font.toFixed(1)}px ${FONT}`;
    c.textAlign = "right";
    c.fillText(count, left + w - 5 * scale, base);
    c.textAlign = "left";
  }

  cell(c, rects, name, left, top, side) {
    const one = this.nodes.get(name) ?? NOTHING, to = this.to;
    const put = (colour, ...rect) => {
      if (!rects.has(colour)) rects.set(colour, []);
      rects.get(colour).push(...rect);
    };
    const parts = shares(one), slots = one[1] + (one[5] ?? 0);
    if (side < NEAR) {
      put(to.free, left, top, side, side);
      let bottom = top + side;
      for (const [who, count] of parts) {
        const part = (side * count) / Math.max(1, slots);
        bottom -= part;
        if (who !== "free") put(this.colour(c, who), left, bottom, side, part);
      }
      return;
    }
    put(to.nodeEdge, left - 0.75, top - 0.75, side + 1.5, side + 1.5);
    put(to.node, left, top, side, side);
    const columns = slots <= 2 ? slots : Math.ceil(slots / Math.max(1, Math.round(Math.sqrt(slots / 2)))), lines = Math.ceil(slots / Math.max(1, columns));
    const edge = Math.max(1, side * 0.06), gap = Math.max(1, side * 0.045), foot = side > NAMED ? 14 : 0;
    const w = (side - 2 * edge - gap * (columns - 1)) / columns, hh = (side - foot - 2 * edge - gap * (lines - 1)) / lines;
    let index = 0;
    for (const [who, count] of parts) {
      const colour = this.colour(c, who);
      for (let one_ = 0; one_ < count && index < 256; one_ += 1, index += 1) {
        put(colour, left + edge + (index % columns) * (w + gap), top + edge + Math.floor(index / columns) * (hh + gap), w, hh);
      }
    }
  }

  signs(c, name, left, top, side) {
    const one = this.nodes.get(name) ?? NOTHING, to = this.to, note = one[3];
    if (note) {
      if (note !== "cordoned") {
        c.fillStyle = to.veil;
        c.fillRect(left, top, side, side);
      }
      c.strokeStyle = to.broken;
      c.lineWidth = Math.max(1, Math.min(3, side / 9));
      c.beginPath();
      c.moveTo(left, top + side);
      c.lineTo(left + side, top);
      if (note !== "cordoned") {
        c.moveTo(left, top);
        c.lineTo(left + side, top + side);
      }
      c.stroke();
    }
    if (side > NAMED) {
      c.fillStyle = to.text;
      c.font = `400 11px ${FONT}`;
      c.fillText(name, left + 4, top + side - 4, side - 8);
    }
  }

  // Each owner's colour is found once; held and reserved are patterns.
  colour(c, who) {
    const to = this.to;
    if (who === "free") return to.free;
    if (who === "broken") return to.broken;
    if (who === "held" || who === "reserved") {
      this.patterns ??= { held: pattern(c, to, "held"), reserved: pattern(c, to, "reserved") };
      return this.patterns[who];
    }
    if (!this.colours.has(who)) {
      const set = this.setOf(who);
      this.colours.set(who, set ? colourOf(set, who) : to.other);
    }
    return this.colours.get(who);
  }

  at(px, py) {
    const { x, y, scale } = this.view, wx = (px - x) / scale, wy = (py - y) / scale;
    for (const [name, cell] of within(this.layout, wx, wy, 0, 0)) {
      if (wx >= cell.x && wx <= cell.x + CELL && wy >= cell.y && wy <= cell.y + CELL) return name;
    }
    return null;
  }

  zoom(factor, px = this.size.width / 2, py = this.size.height / 2) {
    if (!this.view.scale) this.fit();
    const view = this.view, scale = Math.min(MOST_ZOOM, Math.max(0.02, view.scale * factor));
    view.x = px - (px - view.x) * (scale / view.scale);
    view.y = py - (py - view.y) * (scale / view.scale);
    view.scale = scale;
    view.touched = true;
    this.draw();
  }

  pan(dx, dy) {
    if (!this.view.scale) this.fit();
    this.view.x += dx;
    this.view.y += dy;
    this.view.touched = true;
    this.draw();
  }

  // Brings a node into sight, near enough to see its GPUs.
  show(name) {
    const at = this.layout?.cells.get(name);
    if (!at || !this.size.width) return;
    const scale = Math.max(this.view.scale, (NEAR + 7) / CELL);
    this.view = { scale, x: this.size.width / 2 - (at.x + CELL / 2) * scale, y: this.size.height / 2 - (at.y + CELL / 2) * scale, touched: true };
    this.draw();
  }

  listen() {
    const canvas = this.canvas, fingers = new Map();
    let moved = 0, apart = 0;
    canvas.addEventListener("wheel", (event) => {
      if (this.small && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      moved = apart = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const from = fingers.get(event.pointerId);
      if (!from) return this.point(this.layout ? this.at(event.offsetX, event.offsetY) : null, event.offsetX, event.offsetY);
      fingers.set(event.pointerId, event);
      moved += Math.abs(event.clientX - from.clientX) + Math.abs(event.clientY - from.clientY);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], far = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (apart) this.zoom(far / apart, (a.offsetX + b.offsetX) / 2, (a.offsetY + b.offsetY) / 2);
        apart = far;
      } else if (moved > 3) this.pan(event.clientX - from.clientX, event.clientY - from.clientY);
      return undefined;
    });
    const up = (event) => {
      const was = fingers.delete(event.pointerId);
      if (was && event.type === "pointerup" && moved < 5 && !fingers.size) this.pick(this.at(event.offsetX, event.offsetY), event);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
      if (steps[event.key]) this.pan(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.all();
      else if (event.key === "Escape") this.chosen(null);
      else return;
      event.preventDefault();
    });
    new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect, turned = width !== this.size.width;
      this.size = { width, height };
      if (turned) this.arrange();
      if (!this.view.touched) this.view.scale = 0;
      this.draw();
    }).observe(canvas);
  }

  point(node, px = 0, py = 0) {
    const one = node ? row("nodes", node) : null;
    this.hint.hidden = !one;
    this.canvas.classList.toggle("over", Boolean(one));
    if (!one) return;
    fill(this.hint, h("b", {}, node), h("div", { class: "dim" }, one[0].join(" / ")), h("div", {}, `${one[2]} of ${one[1]} in use`),
      sayings(one).map((text) => h("div", { class: "why" }, text)),
      one[4].slice(0, 6).map(([who, count]) => h("div", {}, h("span", { class: "swatch" }, swatch(this.setOf(who) ? this.colour(null, who) : theme().other)), ` ${count} × ${who.split("/")[1] ?? who}`)));
    const { width, height } = this.size;
    Object.assign(this.hint.style, {
      left: px < width / 2 ? `${px + 14}px` : "auto", right: px < width / 2 ? "auto" : `${width - px + 14}px`,
      top: py < height / 2 ? `${py + 14}px` : "auto", bottom: py < height / 2 ? "auto" : `${height - py + 14}px`,
    });
  }

  pick(node, event) {
    if (!node) return this.chosen(null);
    const gang = (row("nodes", node)?.[4] ?? []).find(([who]) => this.setOf(who))?.[0];
    return this.chosen(event.shiftKey || !gang ? { node } : { node, gang });
  }
}

// What is to be known of a node besides who is on it; the words of `kubectl grove topology`.
export function sayings([, , , note, , broken = 0, reserved = [], heldFor = ""]) {
  return [note, broken && `${broken} broken`, ...reserved.map(([name, count]) => `${count} reserved by ${name}`), heldFor && `held for ${heldFor}`].filter(Boolean);
}

const FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', system-ui, sans-serif";

function paintAll(c, rects) {
  for (const [colour, list] of rects) {
    c.fillStyle = colour;
    for (let index = 0; index < list.length; index += 4) c.fillRect(list[index], list[index + 1], list[index + 2], list[index + 3]);
  }
}

function pattern(c, to, kind) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const p = tile.getContext("2d");
  p.fillStyle = to.free;
  p.fillRect(0, 0, 6, 6);
  if (kind === "held") {
    p.strokeStyle = to.mark;
    p.lineWidth = 1.6;
    p.beginPath();
    for (const from of [-6, 0, 6]) {
      p.moveTo(from, 6);
      p.lineTo(from + 6, 0);
    }
    p.stroke();
  } else {
    p.fillStyle = to.mark;
    p.fillRect(1, 1, 2, 2);
    p.fillRect(4, 4, 2, 2);
  }
  return c.createPattern(tile, "repeat");
}

// A small square of a legend, in the same look as on the canvas.
export function swatch(what) {
  const to = theme(), svg = (...inner) => h("svg:svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, inner);
  const square = (colour) => h("svg:rect", { width: 12, height: 12, rx: 2, fill: colour });
  const lines = (colour, path, width = 1.6) => h("svg:path", { d: path, stroke: colour, "stroke-width": width, fill: "none" });
  if (what === "free") return svg(square(to.free));
  if (what === "other") return svg(square(to.other));
  if (what === "held") return svg(square(to.free), lines(to.mark, "M0 6 6 0M0 12 12 0M6 12 12 6"));
  if (what === "reserved") return svg(square(to.free), [[2, 2], [7, 2], [4.5, 5], [2, 8], [7, 8]].map(([x, y]) => h("svg:rect", { x, y, width: 2.2, height: 2.2, fill: to.mark })));
  if (what === "broken") return svg(square(to.broken));
  if (what === "cordoned") return svg(square(to.free), lines(to.broken, "M0 12 12 0", 2));
  if (what === "does not answer") return svg(square(to.free), lines(to.broken, "M0 12 12 0M0 0 12 12", 2));
  if (what === "planned") return svg(square(to.free), h("svg:rect", { x: 1, y: 1, width: 10, height: 10, fill: "none", stroke: to.planned, "stroke-width": 2 }));
  return svg(square(what));
}

