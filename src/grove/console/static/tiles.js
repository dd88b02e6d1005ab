// A large picture in tiles: each is painted once and again only when something in it changed. A frame of panning copies
// tiles; those that are missing are painted within a budget of milliseconds, and until then the last picture, stretched
// or shrunk, stands in for them.

const SIDE = 128, BUDGET_MS = 6, SPARE = 60;

export class Tiles {
  // `paint(context, x, y, w, h, scale)` draws a part of the world, given in its own units.
  constructor(paint) {
    this.paint = paint;
    this.scale = 0;
    this.ratio = 1;
    this.tiles = new Map();
    this.old = null;
  }

  // Everything has another look: paint it all again, and show what there is until then.
  spoil() {
    for (const tile of this.tiles.values()) tile.stale = true;
  }

  // Everything has another place: nothing that was painted is of use.
  forget() {
    this.tiles.clear();
    this.old = null;
  }

  // What lies in a rectangle of the world has another look.
  touch(x, y, w, h) {
    const side = SIDE / (this.scale || 1);
    for (let row = Math.floor(y / side); row <= Math.floor((y + h) / side); row += 1) {
      for (let column = Math.floor(x / side); column <= Math.floor((x + w) / side); column += 1) {
        const tile = this.tiles.get(`${column} ${row}`);
        if (tile) tile.stale = true;
      }
    }
  }

  // Draws what is seen from `view`; whether there is more to paint in the next frame.
  draw(c, view, width, height, ratio) {
    if (view.scale !== this.scale || ratio !== this.ratio) {
      if (this.tiles.size) this.old = { scale: this.scale, tiles: this.tiles };
      this.tiles = new Map();
      this.scale = view.scale;
      this.ratio = ratio;
    }
    const began = performance.now(), late = [];
    const first = { column: Math.floor(-view.x / SIDE), row: Math.floor(-view.y / SIDE) };
    const last = { column: Math.floor((width - view.x) / SIDE), row: Math.floor((height - view.y) / SIDE) };
    const wanted = [];
    let missing = false;
    for (let row = first.row; row <= last.row; row += 1) {
      for (let column = first.column; column <= last.column; column += 1) {
        const tile = this.tiles.get(`${column} ${row}`);
        wanted.push([column, row, tile]);
        missing ||= !tile;
      }
    }
    if (missing && this.old) this.standIn(c, view);
    for (const [column, row, known] of wanted) {
      let tile = known;
      if (!tile || tile.stale) {
        if (performance.now() - began < BUDGET_MS) tile = this.painted(column, row, tile);
        else late.push(tile);
      }
      if (tile) c.drawImage(tile.canvas, Math.round(view.x) + column * SIDE, Math.round(view.y) + row * SIDE, SIDE, SIDE);
    }
    if (!late.length) this.old = null;
    const most = wanted.length + SPARE;
    if (this.tiles.size > most) {
      const seen = new Set(wanted.map(([column, row]) => `${column} ${row}`));
      for (const key of [...this.tiles.keys()]) if (!seen.has(key) && this.tiles.size > most) this.tiles.delete(key);
    }
    return late.length > 0;
  }

  painted(column, row, known) {
    const tile = known ?? { canvas: document.createElement("canvas") };
    const side = Math.round(SIDE * this.ratio), canvas = tile.canvas;
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const c = canvas.getContext("2d", { alpha: false });
    c.setTransform(this.ratio, 0, 0, this.ratio, -column * SIDE * this.ratio, -row * SIDE * this.ratio);
    this.paint(c, (column * SIDE) / this.scale, (row * SIDE) / this.scale, SIDE / this.scale, SIDE / this.scale, this.scale);
    tile.stale = false;
    this.tiles.set(`${column} ${row}`, tile);
    return tile;
  }

  standIn(c, view) {
    const times = view.scale / this.old.scale, side = SIDE * times;
    for (const [key, tile] of this.old.tiles) {
      const [column, row] = key.split(" ").map(Number);
      c.drawImage(tile.canvas, view.x + column * side, view.y + row * side, side, side);
    }
  }
}
