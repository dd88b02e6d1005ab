// Talking to the server: the token of this tab in a header, never in an address.

const KEY = "grove-session";
let token = sessionStorage.getItem(KEY) ?? "";

export const session = {
  get token() { return token; },
  set(value) {
    token = value;
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  },
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function json(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, body.error ?? `the console answered ${response.status}`);
  return body;
}

export async function mode() {
  return json(await fetch("/api/mode", { cache: "no-store" }));
}

export async function openLink(link) {
  const { session: opened } = await json(await fetch("/api/session", { method: "POST", body: JSON.stringify({ link }) }));
  session.set(opened);
}

export async function ask(question, asked = {}, signal = undefined) {
  const response = await fetch(`/api/ask/${question}`, { method: "POST", headers: headers(), body: JSON.stringify(asked), signal });
  return json(response);
}

// How the figures of a subject were in the last seconds.
export async function series(namespace, key, last) {
  const asked = new URLSearchParams({ namespace, key, last: String(last) });
  return json(await fetch(`/api/series?${asked}`, { headers: headers(), cache: "no-store" }));
}

export async function act(asked) {
  return json(await fetch("/api/act", { method: "POST", headers: headers(), body: JSON.stringify(asked) }));
}

// One stream of changes; `seen` is the last revision we have. Ends when the connection does; the caller connects again.
export async function stream(namespace, seen, hear, signal) {
  const extra = seen === null ? {} : { "Last-Event-ID": String(seen) };
  const response = await fetch(`/api/stream?namespace=${encodeURIComponent(namespace)}`, {
    headers: { ...headers(), ...extra }, signal, cache: "no-store",
  });
  if (!response.ok) await json(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  const parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n")) continue;
    rest += parts.splice(0).join("");
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = { event: "message", data: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        const colon = line.indexOf(":");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
      }
      rest = rest.slice(end + 2);
      if (event.data) hear(event.event, event.id === undefined ? null : Number(event.id), JSON.parse(event.data));
    }
  }
}
