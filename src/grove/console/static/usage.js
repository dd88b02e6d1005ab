// GPU-hours by team and set: of a time, if there is a Prometheus, else since the scheduler started.

import { ask } from "./api.js";
import { fill, h, link, table } from "./dom.js";
import { row, state } from "./store.js";

const STATES = ["serving", "starting", "held", "broken", "waiting"];
const TITLES = STATES.map((name) => name[0].toUpperCase() + name.slice(1));
const QUOTA = ["Guaranteed", "Limit", "In use", "Waited for"];
const hours = (one) => STATES.map((name) => (one.gpuHours?.[name] ?? 0).toFixed(1));

function idle(found) {
  if (found.idleShare === undefined || found.idleShare === null) return null;
  return h("p", {}, `${Math.round(100 * found.idleShare)} % idle: ${found.idleGpuHours.toFixed(1)} of ${found.gpuHours.toFixed(1)} GPU-hours of all nodes`);
}

// The GPUs of a queue: guaranteed, its limit, in use and waited for.
function quota(queues, name) {
  const queue = queues.find((one) => one.name === name);
  const resource = queue?.resources.find((one) => one === row("fleet", "resource") || one === "gpu"); // KAI calls GPUs of any vendor gpu
  return ["guaranteed", "limit", "used", "waiting"].map((amount) => queue?.shown[amount][resource] ?? "");
}

function tables(found, queues) {
  if (found.note) return h("p", { class: "dim" }, found.note);
  return [idle(found), h("h2", {}, "By team"),
    table(["Team", ...(queues.length ? QUOTA : []), ...TITLES], found.teams.map((one) => [one.queue || "no queue", ...(queues.length ? quota(queues, one.queue) : []), ...hours(one)]),
      { caption: queues.length ? "GPUs and GPU-hours by team" : "GPU-hours by team", numeric: [1, 2, 3, 4, 5, 6, 7, 8, 9], empty: "nothing is counted yet" }),
    h("h2", {}, "By set"),
    table(["Team", "Set", ...TITLES], found.sets.slice(0, 100).map((one) => [one.queue || "no queue", one.set ? link(`${one.namespace}/${one.set}`, "set", one.namespace, one.set) : one.namespace, ...hours(one)]),
      { caption: "GPU-hours by set, the most first", numeric: [2, 3, 4, 5, 6], empty: "nothing is counted yet" })];
}

export function page(main) {
  const since = h("small"), choose = h("div", { class: "speeds", role: "group", "aria-label": "how far back" });
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Asking …"));
  fill(main, h("div", { class: "title" }, h("h1", {}, "GPU-hours ", since)), choose, body);
  let over = false, asked = 0;
  const load = async (last) => {
    const turn = ++asked;
    try {
      const found = await ask("usage", { namespace: state.namespace, last });
      const queues = await ask("queues").catch(() => []); // who may not see them sees the hours all the same
      if (over || turn !== asked) return;
      fill(since, found.since ?? "");
      fill(choose, (found.times ?? []).map(([seconds, text]) => h("button", { type: "button", "aria-pressed": String(seconds === found.last), onclick: () => load(seconds) }, text)));
      fill(body, tables(found, queues));
    } catch (error) {
      if (!over && turn === asked) fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  load(86400);
  return () => {
    over = true;
  };
}
