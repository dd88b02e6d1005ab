// Any object as YAML, read with the viewer's own rights.

import { ask } from "./api.js";
import { fill, h } from "./dom.js";

export function page(main, [kind, namespace, name]) {
  const body = h("pre", { tabindex: 0, "aria-label": `${kind} ${name} as YAML` }, "…");
  fill(main, h("div", { class: "title" }, h("h1", {}, `${kind} ${name}`)), body);
  ask("object", { kind, name, namespace: namespace === "-" ? "" : namespace }).then(
    (found) => fill(body, found.yaml),
    (error) => main.append(h("p", { class: "error", role: "alert" }, error.message)),
  );
  return () => {};
}
