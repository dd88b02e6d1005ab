// Who waits for a place, in the order the scheduler takes them.

import { ask } from "./api.js";
import { age, bar, fill, h, link, table } from "./dom.js";
import { onChange, state } from "./store.js";

function lines(found) {
  const waiting = Array.isArray(found) ? found : found.waiting ?? found.gangs ?? [];
  return table(["#", "Namespace", "Gang", "Priority", "Pods", "Age", "Waits for"], waiting.map((one, index) => [
    index + 1, one.namespace, link(one.name, "why", one.namespace, one.name), one.priority, one.pods, age(one.created), one.waitsFor ?? one.why ?? "",
  ]), { caption: "Waiting gangs in order", numeric: [0, 3, 4], empty: "no gang waits" });
}

function quotas(found) {
  const queues = Array.isArray(found) ? [] : found.queues ?? [];
  if (!queues.length) return null;
  const cells = queues.flatMap((queue) => (queue.resources ?? []).map((one) => [
    "\u00a0".repeat(2 * (queue.depth ?? 0)) + queue.name, one.resource, bar(one.used, one.limit ?? one.guaranteed ?? one.used), one.used, one.guaranteed ?? "",
    one.fairShare ?? "", one.limit ?? "", one.waiting ?? "",
  ]));
  return [h("h2", {}, "Queues"), table(["Queue", "Resource", "", "Used", "Guaranteed", "Fair share", "Limit", "Waiting"], cells, { caption: "Queues", numeric: [3, 4, 5, 6, 7] })];
}

export function page(main) {
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Asking …"));
  fill(main, h("h1", {}, "Queue"), body);
  let busy = false, again = false, timer = null;
  const load = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const found = await ask("queue", { namespace: state.namespace });
      fill(body, lines(found), quotas(found));
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error.message));
    }
    timer = setTimeout(() => {
      busy = false;
      if (again) {
        again = false;
        load();
      }
    }, 2000);
  };
  load();
  const stop = onChange((names) => (names.has("gangs") || names.has("sets")) && load());
  return () => {
    stop();
    clearTimeout(timer);
  };
}
