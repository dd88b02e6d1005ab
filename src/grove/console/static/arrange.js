// Where every node is drawn: domains as nested boxes, a leaf a grid of nodes, an inner one rows of its children. Pure.

import { byName } from "./dom.js";

export const CELL = 14;
const GAP = 2.5, PAD = 5, HEAD = 10, BUCKET = 128;
const SHAPES = [0.5, 0.8, 1.2, 1.8, 2.6, 4];

// How many columns for `count` equal boxes: few empty places first, then a little wider than high.
export function columnsFor(count) {
  let best = 1, least = Infinity;
  for (let columns = Math.max(1, Math.floor(Math.sqrt(count))); columns <= Math.ceil(Math.sqrt(count * 2.4)); columns += 1) {
    const empty = columns * Math.ceil(count / columns) - count, shape = Math.abs(Math.log(columns / Math.sqrt(count * 1.5)));
    if (empty * 0.5 + shape < least) [best, least] = [columns, empty * 0.5 + shape];
  }
  return best;
}

function grown(nodes) {
  const root = { name: "", children: new Map(), nodes: [] };
  for (const [name, [path]] of nodes) {
    let here = root;
    for (const domain of path) {
      if (!here.children.has(domain)) here.children.set(domain, { name: domain, children: new Map(), nodes: [] });
      here = here.children.get(domain);
    }
    here.nodes.push(name);
  }
  const sorted = (domain) => {
    domain.nodes.sort(byName);
    domain.inner = [...domain.children.values()].sort((a, b) => byName(a.name, b.name));
    domain.inner.forEach(sorted);
  };
  sorted(root);
  return root;
}

const largestLeaf = (domain) => (domain.inner.length ? Math.max(...domain.inner.map(largestLeaf)) : Math.max(1, domain.nodes.length));

// Rows of this number of children; the widest row and the sum of the highest of each make the size.
function rowsOf(inner, columns) {
  let w = 0, y = HEAD;
  const at = [];
  for (let first = 0; first < inner.length; first += columns) {
    let x = PAD, tall = 0;
    for (const one of inner.slice(first, first + columns)) {
      at.push([x, y]);
      x += one.w + PAD;
      tall = Math.max(tall, one.h);
    }
    w = Math.max(w, x);
    y += tall + PAD;
  }
  return { w, h: y, at };
}

function sized(domain, shape, columns) {
  if (!domain.inner.length) {
    domain.columns = columns;
    domain.w = 2 * PAD + columns * (CELL + GAP) - GAP;
    domain.h = HEAD + PAD + Math.max(1, Math.ceil(domain.nodes.length / columns)) * (CELL + GAP) - GAP;
    return;
  }
  domain.inner.forEach((one) => sized(one, shape, columns));
  let best = null, least = Infinity;
  const most = Math.min(domain.inner.length, 60);
  for (let columns = 1; columns <= most; columns += 1) {
    const found = rowsOf(domain.inner, columns);
    const empty = columns * Math.ceil(domain.inner.length / columns) - domain.inner.length;
    const off = Math.abs(Math.log(found.w / found.h / shape)) + (0.3 * empty) / domain.inner.length;
    if (off < least) [best, least] = [found, off];
  }
  Object.assign(domain, { w: best.w, h: best.h, at: best.at });
}

// `wide` is how much wider than high the picture may be. Answers with the cells by node, the boxes from broad to narrow,
// and an index of both by place.
export function arrange(nodes, wide = 1.6) {
  const root = grown(nodes);
  const columns = columnsFor(largestLeaf(root)); // the same for all: a rack that lost a node keeps its shape
  let shape = wide, largest = 0;
  for (const one of [wide, ...SHAPES]) {
    sized(root, one, columns);
    const scale = Math.min(wide / root.w, 1 / root.h);
    if (scale > largest * 1.02) [shape, largest] = [one, scale];
  }
  sized(root, shape, columns);
  const boxes = [], cells = new Map();
  const place = (domain, x, y, depth, above) => {
    const box = depth ? { name: domain.name, short: shortName(domain.name, above), x, y, w: domain.w, h: domain.h, depth, leaf: !domain.inner.length, nodes: [] } : null;
    if (box) boxes.push(box);
    domain.nodes.forEach((name, index) => {
      cells.set(name, {
        x: x + PAD + (index % domain.columns) * (CELL + GAP), y: y + HEAD + Math.floor(index / domain.columns) * (CELL + GAP),
      });
      box?.nodes.push(name);
    });
    domain.inner.forEach((one, index) => {
      place(one, x + domain.at[index][0], y + domain.at[index][1] - (depth ? 0 : HEAD), depth + 1, domain.name);
    });
  };
  place(root, 0, 0, 0, "");
  const buckets = new Map();
  for (const [name, at] of cells) {
    const key = bucketOf(at.x, at.y);
    if (!buckets.has(key)) buckets.set(key, []);
    buckets.get(key).push([name, at]);
  }
  return { boxes, cells, buckets, w: root.w, h: root.h - HEAD };
}

function shortName(name, above) {
  return above && name.startsWith(`${above}-`) ? name.slice(above.length + 1) : name || "(no label)";
}

const bucketOf = (x, y) => `${Math.floor(x / BUCKET)} ${Math.floor(y / BUCKET)}`;

// The nodes whose cells may touch a rectangle.
export function* within(layout, x, y, w, h) {
  for (let row = Math.floor((y - CELL) / BUCKET); row <= Math.floor((y + h) / BUCKET); row += 1) {
    for (let column = Math.floor((x - CELL) / BUCKET); column <= Math.floor((x + w) / BUCKET); column += 1) {
      yield* layout.buckets.get(`${column} ${row}`) ?? [];
    }
  }
}
