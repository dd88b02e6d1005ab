// Elements without markup in strings: whatever an object is called, it is text.

export function h(tag, attributes = {}, ...children) {
  const element = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

const FOCUSED = "a, button, input, [tabindex]";
const called = (one) => `${one.tagName} ${one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.textContent}`;

// The element with the focus keeps it if it still exists: a live page must not take the focus from a keyboard.
export function fill(element, ...children) {
  const had = element.contains(document.activeElement) && document.activeElement !== element ? document.activeElement : null;
  const name = had && called(had), index = had ? [...element.querySelectorAll(FOCUSED)].indexOf(had) : -1;
  element.replaceChildren();
  put(element, children);
  if (had) {
    const all = [...element.querySelectorAll(FOCUSED)];
    (all.find((one) => called(one) === name) ?? all[index])?.focus({ preventScroll: true });
  }
  return element;
}

// Fills an element again only when what it shows has changed.
export function keep(element, shown, make) {
  const now = JSON.stringify(shown);
  if (element.shown === now) return;
  element.shown = now;
  fill(element, make());
}

// The same, where the elements themselves are the best word for what they show: nothing is said twice to a screen reader.
export function settle(element, ...children) {
  const made = document.createElement("div");
  put(made, children);
  if (made.innerHTML !== element.innerHTML) fill(element, [...made.childNodes]);
}

// Calls a function at most this often, and once after the last time it was wanted.
export function calmly(draw, ms = 400) {
  let timer = null, last = 0;
  const now = () => {
    timer = null;
    last = performance.now();
    draw();
  };
  return { draw: () => { timer ??= setTimeout(now, Math.max(0, last + ms - performance.now())); }, stop: () => clearTimeout(timer) };
}

// Runs a question one at a time: wanted again while it runs or within `ms` after it, it runs once more then.
export function inTurn(question, ms) {
  let busy = false, again = false, timer = null, stopped = false;
  const run = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    again = false;
    await question();
    if (stopped) return;
    timer = setTimeout(() => {
      busy = false;
      if (again) run();
    }, ms);
  };
  return { run, stop: () => {
    stopped = true;
    clearTimeout(timer);
  } };
}

export function link(text, ...path) {
  return h("a", { href: "#/" + path.map(encodeURIComponent).join("/") }, text);
}

export function table(titles, rows, { caption, empty = "nothing here", numeric = [], wide = [] } = {}) {
  if (!rows.length) return h("p", { class: "dim" }, empty);
  const cell = (tag, one, index) => h(tag, {
    class: numeric.includes(index) ? "number" : wide.includes(index) ? "wide" : undefined, scope: tag === "th" ? "col" : undefined,
  }, one);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      caption && h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, titles.map((title, index) => cell("th", title, index)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: row.class }, (row.cells ?? row).map((one, index) => cell("td", one, index)))))));
}

export function badge(word) {
  return h("span", { class: "badge " + word.replaceAll(" ", "-") }, word);
}

export function bar(part, whole, label) {
  const share = whole ? Math.min(1, part / whole) : 0;
  return h("span", { class: "bar", role: "img", "aria-label": label ?? `${part} of ${whole}` },
    h("svg:svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("svg:rect", { width: 100, height: 8, class: "bar-rest" }),
      h("svg:rect", { width: 100 * share, height: 8, class: "bar-part" })));
}

export function age(since, now = Date.now()) {
  if (!since) return "";
  const seconds = Math.max(0, Math.floor((now - new Date(since).getTime()) / 1000));
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${seconds}s`;
}

export function many(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

// chat-2 before chat-10
export function byName(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}
