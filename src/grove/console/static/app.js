// The page: signing in, the address bar, keys. Every view is a function of the main element and the address.

import { Refused, mode, openLink, session } from "./api.js";
import { fill, h } from "./dom.js";
import { follow, onChange, rows, state, tell } from "./store.js";
import * as fleet from "./fleet.js";
import * as object from "./object.js";
import * as one from "./one.js";
import * as plan from "./plan.js";
import * as queue from "./queue.js";
import * as sets from "./sets.js";
import * as tour from "./tour.js";
import * as trends from "./trends.js";
import * as usage from "./usage.js";
import * as why from "./why.js";

const PAGES = { tour, fleet, sets, queue, plan, set: one, why, object, trends, usage, gang: fleet };
const TABS = [["tour", "Tour"], ["fleet", "Fleet"], ["sets", "Sets"], ["queue", "Queue"], ["trends", "Over time"], ["usage", "GPU-hours"], ["plan", "Plan"]];
const KEYS = [["g f", "the fleet"], ["g s", "the sets"], ["g q", "the queue"], ["g o", "over time"], ["g u", "GPU-hours"], ["g p", "a plan"], ["/", "search"], ["t", "light or dark"],
  ["arrows, +, -, 0", "on the fleet: pan, zoom, show all"], ["?", "these keys"], ["Esc", "close"]];

const main = document.getElementById("main"), top_ = document.getElementById("top"), notice = document.getElementById("notice");
let leave = () => {}, kind = "local";

const say = (text) => fill(notice, text ?? "");

function address() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return [page || (kind === "tour" ? "tour" : "sets"), rest];
}

function header() {
  const [page] = address();
  fill(top_, h("a", { href: "#/", class: "brand" }, h("img", { src: "/static/icon.svg", alt: "" }), "Grove"),
    h("nav", { "aria-label": "pages" }, TABS.filter(([name]) => name !== "tour" || kind === "tour").map(([name, title]) =>
      h("a", { href: `#/${name}`, "aria-current": page === name ? "page" : undefined }, title))),
    h("span", { class: "grow" }),
    kind !== "tour" && h("label", {}, h("span", { class: "unseen" }, "namespace"), h("input", {
      id: "namespace", placeholder: "all namespaces", value: state.namespace, size: 14,
      onchange: (event) => start(event.target.value.trim()),
    })),
    h("span", { class: `connection ${state.connection}`, role: "status", title: "the line to the console" }, state.connection),
    h("button", { type: "button", onclick: turn, "aria-label": "light or dark" }, "◐"),
    h("button", { type: "button", onclick: keys, "aria-label": "keys" }, "?"));
}

function show() {
  leave();
  header();
  const [page, rest] = address();
  const found = PAGES[page] ?? sets;
  main.dataset.page = page;
  document.title = `Grove ${rest.length ? rest.join(" ") : page}`;
  leave = found.page(main, rest) ?? (() => {});
}

function turn() {
  const root = document.documentElement;
  const night = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = night ? "light" : "dark";
  tell("theme");
}

// The system switches its theme: pictures are painted again.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => tell("theme"));

function keys() {
  const dialog = document.getElementById("keys");
  fill(dialog, h("h2", {}, "Keys"), h("dl", {}, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  if (!dialog.open) dialog.showModal();
}

let going = false;
addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = { f: "fleet", s: "sets", q: "queue", o: "trends", u: "usage", p: "plan", t: "tour" }[event.key];
  if (going && to) location.hash = `#/${to}`;
  else if (event.key === "?") keys();
  else if (event.key === "t" && !going) turn();
  else if (event.key === "/" && document.getElementById("search")) {
    document.getElementById("search").focus();
    event.preventDefault();
  }
  going = event.key === "g";
});

function signIn(message) {
  leave();
  leave = () => {};
  header();
  const token = h("input", { type: "password", id: "token", autocomplete: "off", "aria-label": "token", size: 40 });
  const namespace = h("input", { id: "where", placeholder: "all namespaces", "aria-label": "namespace", value: state.namespace });
  const form = h("form", { class: "sign-in", onsubmit: (event) => {
    event.preventDefault();
    session.set(token.value.trim());
    start(namespace.value.trim());
  } }, h("h1", {}, "Sign in"), message && h("p", { class: "error", role: "alert" }, message),
  h("p", {}, "Paste a bearer token. It stays in this tab, and everything you see is read with it: ", h("code", {}, "kubectl create token ACCOUNT")),
  h("label", { for: "token" }, "Token"), token, h("label", { for: "where" }, "Namespace"), namespace, h("button", {}, "Look"));
  fill(main, kind === "cluster" ? form : [h("h1", {}, "Not signed in"), h("p", { role: "alert" }, message ?? "open the link that the console printed")]);
}

function start(namespace = "") {
  state.namespace = namespace;
  show();
  follow(namespace, say, (error) => signIn(error.message)).catch((error) => say(error.message));
}

onChange((names) => (names.has("connection") || names.has("about")) && header());
// An operator or a scheduler that does not run matters more than any set, on every page.
onChange((names) => (names.has("processes") || names.has("about")) && fill(document.getElementById("alarm"), [...rows("processes").values()].join("; ")));
addEventListener("hashchange", show);

async function begin() {
  const known = await mode();
  kind = known.mode;
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (link) {
    history.replaceState(null, "", "#/");
    try {
      await openLink(link);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!session.token) return signIn(error.message);
    }
  }
  if (!session.token && !known.signedIn) return signIn();
  return start();
}

begin().catch((error) => fill(main, h("p", { class: "error", role: "alert" }, error.message)));
