// What the server sent, as tables of rows, and the listeners that are called when they change.

import { Refused, stream } from "./api.js";

const tables = new Map();
const listeners = new Set();
let revision = null;
let line = null;
export const state = { namespace: "", connection: "connecting", plan: null, chosen: null };

export function rows(name) {
  if (!tables.has(name)) tables.set(name, new Map());
  return tables.get(name);
}

// The time on the cluster's clock: a story has one of its own.
export const now = () => (tables.get("story")?.has("now") ? new Date(tables.get("story").get("now")).getTime() : Date.now());

export const row = (table, key) => rows(table).get(key);

// Calls `heard(names, keys)` with the set of tables that changed, and of each the keys of the rows that did; `keys` is
// null where everything may have. Returns how to stop that.
export function onChange(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

export function tell(...names) {
  const changed = new Set(names);
  for (const heard of [...listeners]) heard(changed, null);
}

function hear(kind, id, data, notice) {
  if (kind === "ended") {
    notice(data.why);
    return;
  }
  const changed = new Set([...Object.keys(data.put), ...Object.keys(data.gone)]);
  const keys = kind === "whole" ? null : new Map();
  if (kind === "whole") {
    for (const name of tables.keys()) changed.add(name);
    tables.clear();
    if (data.behind) notice("this page fell behind and was drawn again");
  }
  for (const [name, put] of Object.entries(data.put)) {
    const table = rows(name);
    for (const [key, value] of Object.entries(put)) table.set(key, value);
    keys?.set(name, new Set(Object.keys(put)));
  }
  for (const [name, gone] of Object.entries(data.gone)) {
    for (const key of gone) rows(name).delete(key);
    keys?.set(name, new Set([...(keys.get(name) ?? []), ...gone]));
  }
  revision = id;
  for (const heard of [...listeners]) heard(changed, keys);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Follows the cluster until it is stopped: comes back with what was missed, a little later each time it fails.
export async function follow(namespace, notice, refused) {
  line?.abort();
  const mine = (line = new AbortController());
  state.namespace = namespace;
  tables.clear();
  revision = null;
  let wait = 250;
  while (!mine.signal.aborted) {
    try {
      await stream(namespace, revision, (kind, id, data) => {
        wait = 250;
        if (state.connection !== "live") {
          state.connection = "live";
          tell("connection");
        }
        hear(kind, id, data, notice);
      }, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof Refused && error.status < 500 && error.status !== 422) {
        refused(error);
        return;
      }
    }
    state.connection = "connecting";
    tell("connection");
    await pause(wait);
    wait = Math.min(10000, wait * 2);
  }
}
