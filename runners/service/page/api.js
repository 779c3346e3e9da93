// Talks with the server: questions, changes with a key, tasks, and what happens now.

const KEPT = "wherry-token";
let keptHere = "";

export class Problem extends Error {
  constructor(status, facts) {
    super(facts.detail || `The server answered ${status}.`);
    this.status = status;
    this.code = facts.code || "";
    this.hint = facts.hint || "";
  }
}

export function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  keepToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", `${location.pathname}#/`);
}

export function keepToken(token) {
  keptHere = token;
  try {
    sessionStorage.setItem(KEPT, token);
  } catch {
    // Without storage the token ends with this page.
  }
}

export function dropToken() {
  keepToken("");
}

export function readToken() {
  try {
    return sessionStorage.getItem(KEPT) || keptHere;
  } catch {
    return keptHere;
  }
}

export function path(...parts) {
  return `/v1/${parts.map(encodeURIComponent).join("/")}`;
}

export async function ask(place, query = {}) {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined));
  return answer(await send(words.size ? `${place}?${words}` : place, {}));
}

// A change. The same key and body may be sent again: the server does it once.
export async function change(method, place, body, key) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  return answer(await send(place, { method, headers, body: JSON.stringify(body) }));
}

async function send(place, given) {
  const headers = { Authorization: `Bearer ${readToken()}`, ...given.headers };
  try {
    return await fetch(place, { ...given, headers, cache: "no-store" });
  } catch {
    throw new Problem(0, { detail: "The server does not answer.", hint: "See whether `wherry serve` still runs.", code: "GONE" });
  }
}

async function answer(response) {
  const text = await response.text();
  let facts = {};
  try {
    facts = text ? JSON.parse(text) : {};
  } catch {
    throw new Problem(response.status, { detail: "The answer of the server is not JSON." });
  }
  if (!response.ok) throw new Problem(response.status, facts);
  return facts;
}

export function makeKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Returns a task once it has ended. `say` gets each state on the way, and `isWanted` says whether anybody still waits.
export async function followTask(task, say, isWanted = () => true) {
  let known = task;
  while (known.ended_at === null || known.ended_at === undefined) {
    if (!isWanted()) return known;
    say(known);
    known = await ask(path("tasks", known.task), { wait: known.state === "waiting" ? 1 : 2 });
  }
  return known;
}

// Calls `act` for everything that happens, and `tell` with whether the stream is there. It never gives up.
// A hidden page has no stream, because a browser has only a few connections for all pages of a server.
export async function watch(act, tell) {
  for (let pause = 1; ; pause = Math.min(pause * 2, 30)) {
    await waitUntilShown();
    const leave = new AbortController();
    document.addEventListener("visibilitychange", () => document.hidden && leave.abort(), { signal: leave.signal });
    try {
      const response = await send("/v1/events", { signal: leave.signal });
      if (!response.ok) await answer(response);
      tell(true);
      await readEvents(response.body.getReader(), (event) => {
        pause = 1;
        act(event);
      });
    } catch (error) {
      if (error.status === 401) return;
    }
    if (leave.signal.aborted) continue;
    leave.abort();
    tell(false);
    await new Promise((wake) => setTimeout(wake, pause * 1000));
  }
}

function waitUntilShown() {
  if (!document.hidden) return null;
  return new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
}

async function readEvents(reader, act) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) act(JSON.parse(data.slice(6)));
    }
  }
}
