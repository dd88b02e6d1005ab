// The fleet: zones, blocks, racks and nodes on a canvas. From afar a node is a square in its gangs' colours, near by it
// shows every GPU. Beside the picture the same as text, for keyboards and screen readers.

import { colourOf, colourSets, theme } from "./colours.js";
import { badge, bar, byName, fill, h, link, many, table } from "./dom.js";
import { onChange, row, rows, state } from "./store.js";

const CELL = 12, GAP = 2, PAD = 5, HEAD = 11;
const MOST_LISTED = 40;

// Domains as nested boxes: a leaf is a grid of nodes, an inner one a flow of its children, all about as wide as high.
export function arrange(nodes) {
  const root = { name: "", children: new Map(), nodes: [] };
  for (const [name, [path]] of nodes) {
    let here = root;
    for (const domain of path) {
      if (!here.children.has(domain)) here.children.set(domain, { name: domain, children: new Map(), nodes: [] });
      here = here.children.get(domain);
    }
    here.nodes.push(name);
  }
  const boxes = [], cells = new Map();
  const size = (domain) => {
    const inner = [...domain.children.values()].sort((a, b) => byName(a.name, b.name));
    if (!inner.length) {
      domain.nodes.sort(byName);
      const columns = Math.max(1, Math.ceil(Math.sqrt(domain.nodes.length * 1.5)));
      domain.w = 2 * PAD + columns * (CELL + GAP) - GAP;
      domain.h = HEAD + PAD + Math.ceil(domain.nodes.length / columns) * (CELL + GAP);
      domain.columns = columns;
      return;
    }
    inner.forEach(size);
    const area = inner.reduce((sum, one) => sum + (one.w + PAD) * (one.h + PAD), 0);
    const width = Math.max(...inner.map((one) => one.w), Math.sqrt(area * 1.6));
    let x = PAD, y = HEAD + PAD, tallest = 0;
    domain.w = 0;
    for (const one of inner) {
      if (x > PAD && x + one.w > width + PAD) {
        x = PAD;
        y += tallest + PAD;
        tallest = 0;
      }
      one.x = x;
      one.y = y;
      x += one.w + PAD;
      tallest = Math.max(tallest, one.h);
      domain.w = Math.max(domain.w, x);
    }
    domain.h = y + tallest + PAD;
    domain.inner = inner;
  };
  const place = (domain, x, y, depth) => {
    if (depth) boxes.push({ name: domain.name, x, y, w: domain.w, h: domain.h, depth });
    domain.nodes.forEach((name, index) => {
      cells.set(name, {
        x: x + PAD + (index % domain.columns) * (CELL + GAP), y: y + HEAD + Math.floor(index / domain.columns) * (CELL + GAP),
      });
    });
    for (const one of domain.inner ?? []) place(one, x + one.x, y + one.y, depth + 1);
  };
  size(root);
  place(root, 0, 0, 0);
  return { boxes, cells, w: root.w, h: root.h };
}

const setOf = (gang) => row("gangs", [...rows("gangs").keys()].find((key) => key.endsWith(`/${gang}`)) ?? "")?.set ?? "";

export class Fleet {
  constructor(host, { small = false, chosen = () => {} } = {}) {
    this.chosen = chosen;
    this.canvas = h("canvas", { tabindex: 0, role: "img", class: small ? "fleet small" : "fleet", "aria-label": "the fleet" });
    this.hint = h("div", { class: "hint", "aria-hidden": "true" });
    host.append(h("div", { class: "stage" }, this.canvas, this.hint));
    this.view = { x: 0, y: 0, scale: 0 };
    this.colours = new Map();
    this.listen();
    this.stop = onChange((names) => {
      if (["nodes", "gangs", "sets", "plan", "chosen", "theme"].some((one) => names.has(one))) this.refresh(names);
    });
    this.refresh(new Set(["nodes"]));
  }

  refresh(names) {
    this.colours.clear();
    if (names.has("nodes") || names.has("gangs") || !this.sets) {
      this.sets = new Map();
      for (const [key, gang] of rows("gangs")) this.sets.set(key.slice(key.indexOf("/") + 1), gang.set);
      colourSets([...this.sets.values()]);
      const nodes = rows("nodes");
      const shape = [...nodes].map(([name, [path]]) => `${name}/${path.join("/")}`).join();
      if (shape !== this.shape) {
        this.shape = shape;
        this.layout = arrange(nodes);
        if (!this.view.touched) this.view.scale = 0;
      }
    }
    this.draw();
  }

  fit() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const scale = Math.min(width / Math.max(1, this.layout.w), height / Math.max(1, this.layout.h), 4);
    this.view = { scale, x: (width - this.layout.w * scale) / 2, y: (height - this.layout.h * scale) / 2, touched: false };
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.canvas.isConnected) return this.stop();
      const began = performance.now();
      this.paint();
      this.canvas.dataset.frame = (performance.now() - began).toFixed(1);
    });
  }

  paint() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      if (!this.view.touched) this.view.scale = 0;
    }
    if (!this.view.scale) this.fit();
    const { x, y, scale } = this.view, to = theme(), c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = to.ground;
    c.fillRect(0, 0, width, height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "top";
    for (const box of this.layout.boxes) {
      const left = x + box.x * scale, top = y + box.y * scale, w = box.w * scale, hh = box.h * scale;
      if (left > width || top > height || left + w < 0 || top + hh < 0) continue;
      if (w < 6) continue;
      c.strokeStyle = to.line;
      c.lineWidth = box.depth === 1 ? 1.5 : 1;
      c.strokeRect(left, top, w, hh);
      if (HEAD * scale >= 9 && w > 30) {
        c.fillStyle = to.dim;
        c.save();
        c.beginPath();
        c.rect(left, top, w - 2, hh);
        c.clip();
        c.fillText(box.name, left + 3, top + 1);
        c.restore();
      }
    }
    const near = CELL * scale >= 26, marks = CELL * scale >= 5;
    const planned = state.plan ? new Set(state.plan.gangs?.flatMap((gang) => gang.pods.map((one) => one.node)) ?? []) : null;
    for (const [name, at] of this.layout.cells) {
      const left = x + at.x * scale, top = y + at.y * scale, side = CELL * scale;
      if (left > width || top > height || left + side < 0 || top + side < 0) continue;
      const [, total, used, note, taken] = row("nodes", name) ?? [[], 0, 0, "", []];
      c.fillStyle = to.free;
      c.fillRect(left, top, side, side);
      if (near) this.gpus(c, left, top, side, total, taken, to.ground);
      else this.shares(c, left, top, side, total, taken);
      if (note) {
        c.strokeStyle = to.broken;
        c.lineWidth = Math.max(1, side / 12);
        c.beginPath();
        c.moveTo(left, top);
        c.lineTo(left + side, top + side);
        if (note !== "cordoned") {
          c.moveTo(left + side, top);
          c.lineTo(left, top + side);
        }
        c.stroke();
      }
      if (marks) {
        c.strokeStyle = planned?.has(name) ? to.planned : to.line;
        c.lineWidth = planned?.has(name) ? 3 : 1;
        c.strokeRect(left, top, side, side);
      } else if (planned?.has(name)) {
        c.fillStyle = to.planned;
        c.fillRect(left, top, side, side);
      }
      if (this.isChosen(name, taken)) {
        c.strokeStyle = to.chosen;
        c.lineWidth = 2.5;
        c.strokeRect(left - 1, top - 1, side + 2, side + 2);
      }
      if (near && side > 60) {
        c.fillStyle = to.text;
        c.fillText(name, left + 3, top + side - 13, side - 6);
      }
    }
    const [nodes, all, used] = row("fleet", "total") ?? [0, 0, 0];
    this.canvas.setAttribute("aria-label", `${many(nodes, "node")}, ${used} of ${all} ${row("fleet", "resource") ?? "GPUs"} in use`);
  }

  isChosen(name, taken) {
    const one = state.chosen;
    return one && (one.node === name || (one.gang && taken.some(([who]) => who === one.gang)));
  }

  // A look at the theme costs more than a rectangle: each owner's colour is found once.
  colour(who) {
    if (!this.colours.has(who)) {
      const set = this.sets.get(who);
      this.colours.set(who, set ? colourOf(set, who) : theme().other);
    }
    return this.colours.get(who);
  }

  shares(c, left, top, side, total, taken) {
    let bottom = top + side;
    for (const [who, count] of taken) {
      const part = side * Math.min(1, count / Math.max(1, total));
      c.fillStyle = this.colour(who);
      c.fillRect(left, bottom - part, side, part);
      bottom -= part;
    }
  }

  gpus(c, left, top, side, total, taken, free) {
    const columns = Math.max(1, Math.ceil(Math.sqrt(total))), each = (side - 2) / columns;
    const owners = taken.flatMap(([who, count]) => Array(count).fill(who));
    for (let index = 0; index < Math.min(total, 64); index += 1) {
      const who = owners[index];
      c.fillStyle = who ? this.colour(who) : free;
      c.fillRect(left + 1 + (index % columns) * each + 1, top + 1 + Math.floor(index / columns) * each + 1, each - 2, each - 2);
    }
  }

  at(px, py) {
    const { x, y, scale } = this.view, wx = (px - x) / scale, wy = (py - y) / scale;
    for (const [name, cell] of this.layout.cells) {
      if (wx >= cell.x && wx <= cell.x + CELL && wy >= cell.y && wy <= cell.y + CELL) return name;
    }
    return null;
  }

  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const view = this.view, scale = Math.min(20, Math.max(0.05, view.scale * factor));
    view.x = px - (px - view.x) * (scale / view.scale);
    view.y = py - (py - view.y) * (scale / view.scale);
    view.scale = scale;
    view.touched = true;
    this.draw();
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.view.touched = true;
    this.draw();
  }

  listen() {
    const canvas = this.canvas;
    let from = null, moved = 0;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      from = [event.clientX, event.clientY];
      moved = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from) {
        moved += Math.abs(event.clientX - from[0]) + Math.abs(event.clientY - from[1]);
        this.pan(event.clientX - from[0], event.clientY - from[1]);
        from = [event.clientX, event.clientY];
        return;
      }
      this.point(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (moved < 5) {
        const node = this.at(event.offsetX, event.offsetY);
        if (node) this.choose(node, event);
      }
      from = null;
    });
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
      if (steps[event.key]) this.pan(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") {
        this.view.scale = 0;
        this.view.touched = false;
        this.draw();
      } else return;
      event.preventDefault();
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  point(node, px = 0, py = 0) {
    const one = node ? row("nodes", node) : null;
    this.hint.hidden = !one;
    if (!one) return;
    const [path, total, used, note, taken] = one;
    fill(this.hint, h("b", {}, node), ` ${path.join(" / ")}`, h("br"), `${used}/${total} in use${note ? `, ${note}` : ""}`,
      taken.slice(0, 6).map(([who, count]) => [h("br"), `${count} × ${who}`]));
    this.hint.dataset.side = px > this.canvas.clientWidth / 2 ? "left" : "right";
    this.hint.dataset.half = py > this.canvas.clientHeight / 2 ? "top" : "bottom";
  }

  choose(node, event) {
    const taken = row("nodes", node)?.[4] ?? [];
    const gang = taken.find(([who]) => this.sets.has(who))?.[0];
    this.chosen(event.shiftKey || !gang ? { node } : { node, gang });
  }
}

function aboutNode(name) {
  const one = row("nodes", name);
  if (!one) return h("p", { class: "dim" }, `node ${name} is gone`);
  const [path, total, used, note, taken] = one;
  return [
    h("h3", {}, name), h("p", { class: "dim" }, path.join(" / ")),
    h("p", {}, bar(used, total), ` ${used} of ${total} in use`, note && [" ", badge(note)]),
    h("ul", {}, taken.map(([who, count]) => h("li", {}, `${count} × `, setOf(who) ? link(who, "gang", who) : who))),
    h("p", {}, link("YAML", "object", "Node", "-", name)),
  ];
}

function aboutGang(name) {
  const key = [...rows("gangs").keys()].find((one) => one.endsWith(`/${name}`));
  const gang = key && row("gangs", key);
  if (!gang) return h("p", { class: "dim" }, `gang ${name} is gone`);
  const namespace = key.split("/")[0];
  const on = [...rows("nodes")].filter(([, one]) => one[4].some(([who]) => who === name));
  const count = on.reduce((sum, [, one]) => sum + one[4].find(([who]) => who === name)[1], 0);
  return [
    h("h3", {}, name),
    h("p", {}, badge(gang.phase || "Pending"), gang.score !== null && ` placement score ${gang.score.toFixed(2)}`),
    h("p", {}, `${count} ${row("fleet", "resource") ?? ""} on ${many(on.length, "node")}`),
    gang.message && h("p", {}, gang.message),
    h("p", {}, link(gang.set, "set", namespace, gang.set), " · ", link("why", "why", namespace, name), " · ",
      link("YAML", "object", "PodGang", namespace, name)),
    h("ul", {}, on.slice(0, 20).map(([node, one]) => h("li", {}, `${node} `, h("span", { class: "dim" }, one[0].join(" / "))))),
  ];
}

function levels() {
  return table(["Level", "Domains", "Largest free in one", "Whole nodes in one", "Fragmentation"],
    (row("fleet", "levels") ?? []).map((one) => [
      one.name, one.domains, `${one.largestFree}${one.best ? ` (${one.best})` : ""}`, one.largestWhole, `${Math.round(one.fragmentation * 100)} %`,
    ]), { caption: "How large a gang still fits", numeric: [1, 2, 3, 4], empty: "no ClusterTopologyBinding: gangs cannot ask for racks or blocks yet" });
}

export function page(main, [gang]) {
  const side = h("aside", { class: "panel", "aria-label": "what is chosen", "aria-live": "polite" });
  const list = h("div");
  const search = h("input", { type: "search", placeholder: "find a node or a gang", "aria-label": "find a node or a gang", id: "search" });
  const bottom = h("div");
  const host = h("div", { class: "fleet-host" });
  fill(main, h("h1", {}, "Fleet"), h("div", { class: "row" }, search, list), h("div", { class: "split" }, host, side),
    h("h2", {}, "How large a gang still fits"), bottom);
  const choose = (one) => {
    state.chosen = one;
    fill(side, one ? [one.gang ? aboutGang(one.gang) : null, one.node ? aboutNode(one.node) : null]
      : h("p", { class: "dim" }, "Click a node to see who is on it, and all of its gang. Wheel or +/- zooms, arrows pan, 0 shows all."));
    fleet.draw();
  };
  const fleet = new Fleet(host, { chosen: choose });
  choose(gang ? { gang } : null);
  const find = () => {
    const text = search.value.trim().toLowerCase();
    if (!text) return fill(list);
    const nodes = [...rows("nodes").keys()].filter((one) => one.toLowerCase().includes(text)).slice(0, MOST_LISTED);
    const gangs = [...rows("gangs").keys()].filter((one) => one.toLowerCase().includes(text)).slice(0, MOST_LISTED);
    const button = (name, one) => h("button", { type: "button", onclick: () => choose(one) }, name);
    return fill(list, h("div", { class: "chips", role: "group", "aria-label": "found" },
      gangs.map((key) => button(key, { gang: key.slice(key.indexOf("/") + 1) })), nodes.map((name) => button(name, { node: name })),
      !nodes.length && !gangs.length && h("span", { class: "dim" }, "nothing of that name")));
  };
  search.addEventListener("input", find);
  const redraw = () => {
    const blind = row("about", "blind") ?? [];
    fill(bottom, blind.includes("nodes") ? h("p", {}, "You may not list nodes, so there is no fleet to show.") : levels(),
      blind.includes("pods") && h("p", {}, "You may not list pods: what runs where is not shown."),
      state.plan && h("p", {}, "Outlined: where the plan would put pods. ", h("button", {
        type: "button", onclick: () => { state.plan = null; fleet.draw(); redraw(); },
      }, "forget the plan")));
  };
  redraw();
  const stop = onChange((names) => {
    if (names.has("fleet") || names.has("about")) redraw();
    if ((names.has("nodes") || names.has("gangs")) && state.chosen) choose(state.chosen);
  });
  return () => {
    stop();
    fleet.stop();
  };
}

