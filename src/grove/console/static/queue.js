// Who waits for a place, in the order the scheduler takes them.

import { ask } from "./api.js";
import { age, bar, fill, h, inTurn, link, many, settle, table } from "./dom.js";
import { now, onChange, row, state } from "./store.js";

function held(one) {
  const count = row("gangs", `${one.namespace}/${one.name}`)?.held ?? 0;
  return count ? link(many(count, "node"), "gang", one.namespace, one.name) : "";
}

function lines(found) {
  return table(["#", "Namespace", "Gang", "Priority", "Pods", "Age", "Held for it", "Waits for"], found.map((one, index) => [
    index + 1, one.namespace, link(one.name, "why", one.namespace, one.name), one.priority, one.pods, age(one.created, now()), held(one), one.waitsFor,
  ]), { caption: "Waiting gangs in order", numeric: [0, 3, 4, 5], wide: [7], empty: "no gang waits" });
}

function quotas(queues) {
  if (!queues.length) return null;
  const cells = queues.flatMap((queue) => queue.resources.map((name) => [
    "\u00a0".repeat(4 * queue.depth) + queue.name, name, bar(queue.used[name] ?? 0, queue.limit[name] ?? queue.fairShare[name] ?? queue.used[name] ?? 0),
    ...["used", "guaranteed", "fairShare", "limit", "waiting"].map((amount) => queue.shown[amount][name] ?? ""), queue.fault,
  ]));
  return [h("h2", {}, "Queues"), table(["Queue", "Resource", "Share of its limit", "Used", "Guaranteed", "Fair share", "Limit", "Waiting", "Fault"], cells,
    { caption: "Queues and their shares", numeric: [3, 4, 5, 6, 7] })];
}

export function page(main) {
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Asking …"));
  fill(main, h("div", { class: "title" }, h("h1", {}, "Queue ", h("small", {}, "in the order the scheduler takes them"))), body);
  const load = inTurn(async () => {
    try {
      const found = await ask("queue", { namespace: state.namespace, now: new Date(now()).toISOString() });
      const queues = await ask("queues").catch(() => []); // who may not see them sees the line all the same
      settle(body, lines(found), quotas(queues));
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
  }, 2000);
  load.run();
  const stop = onChange((names) => (names.has("gangs") || names.has("sets")) && load.run());
  return () => {
    stop();
    load.stop();
  };
}
