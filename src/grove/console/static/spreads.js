// How evenly the units of sets are distributed over failure domains, as a table.

import { table } from "./dom.js";

export function spreads(found) {
  if (!found?.length) return null;
  return table(["Spread", "Over", "Units in each domain", "Skew", "Limit"], found.map((one) => [
    one.owner, one.domain, one.units.map(([name, count]) => `${name} ${count}`).join(", ") || "no domain can run its pods",
    one.skew, `${one.maxSkew}${one.isRequired ? "" : " (preferred)"}`,
  ]), { caption: "Spread over failure domains", numeric: [3, 4], wide: [2] });
}
