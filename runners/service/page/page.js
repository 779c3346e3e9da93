// Chooses the view by the address, keeps it new, and asks for the token.

import { Problem, dropToken, keepToken, readToken, takeToken, watch } from "./api.js";
import { showProblem } from "./dialogs.js";
import { button, make, swap } from "./dom.js";
import { noteEvent } from "./live.js";
import { map } from "./map.js";
import { overview } from "./overview.js";
import { flowOf, offsetsOf, qualityOf, refusedOf, causeOf, rowOf, runOf, runsOf } from "./pipeline.js";
import { plans } from "./plans.js";
import { learnCaller, showLack } from "./rights.js";
import { schedule } from "./schedule.js";
import { search } from "./search.js";
import { taskOf, tasks } from "./tasks.js";
import { renewTimes } from "./words.js";

const VIEWS = [
  [/^$/, overview], [/^schedule$/, schedule], [/^map$/, map], [/^plans$/, plans], [/^tasks$/, tasks], [/^tasks\/([^/]+)$/, taskOf], [/^search$/, search], [/^search\/([^/]*)$/, search],
  [/^p\/([^/]+)$/, flowOf], [/^p\/([^/]+)\/runs$/, runsOf], [/^p\/([^/]+)\/runs\/([^/]+)$/, runOf],
  [/^p\/([^/]+)\/refused$/, refusedOf], [/^p\/([^/]+)\/refused\/([^/]*)\/([^/]*)$/, causeOf],
  [/^p\/([^/]+)\/row\/([^/]+)$/, rowOf], [/^p\/([^/]+)\/quality$/, qualityOf], [/^p\/([^/]+)\/offsets$/, offsetsOf],
];
const main = document.getElementById("main");
const status = document.getElementById("link");
let shown = { view: null, words: [], data: null, text: "", number: 0 };
let moved = false;

const page = {
  refresh: () => refresh(shown.number),
  renew: () => {
    shown.text = "";
    return refresh(shown.number);
  },
  redraw: () => shown.data && drawView(shown),
  setTitle: (text) => { document.title = `${text} · Wherry`; },
};

function findView() {
  const place = location.hash.replace(/^#\/?/, "");
  for (const [form, view] of VIEWS) {
    const found = form.exec(place);
    if (found) return { view, words: found.slice(1).map(decode) };
  }
  return { view: { title: "Not found", fetch: async () => ({}), draw: () => [make("h1", {}, "There is no such view"), make("p", {}, make("a", { href: "#/" }, "See the pipelines"))] }, words: [] };
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

async function open() {
  if (location.hash.startsWith("#token=")) takeToken();
  if (!readToken()) return askToken("");
  const { view, words } = findView();
  shown = { view, words, data: null, text: "", number: shown.number + 1 };
  markView();
  main.setAttribute("aria-busy", "true");
  await refresh(shown.number);
  main.removeAttribute("aria-busy");
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  moved = true;
  return undefined;
}

async function refresh(number) {
  const current = shown;
  if (number !== current.number) return;
  try {
    const [data] = await Promise.all([current.view.fetch(...current.words), current.knows ? null : learnCaller()]);
    if (number !== shown.number) return;
    current.knows = true;
    const text = JSON.stringify(data);
    if (text === current.text && current.data) return;
    Object.assign(current, { data, text });
    drawView(current);
  } catch (error) {
    if (number === shown.number) showTrouble(error, current);
  }
}

function drawView({ view, words, data }) {
  page.setTitle(view.title || words[0]);
  swap(main, view.draw(data, page, ...words));
  if (main.querySelector("button[aria-disabled]")) main.prepend(showLack());
  performance.mark("wherry-drawn");
}

function showTrouble(error, current) {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401) return askToken(error.message);
  if (current.data && (error.status === 0 || error.status === 429)) return tellLink(false);
  const again = button("Try again", () => refresh(current.number), { kind: "primary" });
  return swap(main, make("h1", {}, current.words[0] || current.view.title || "Wherry"), showProblem(error), again);
}

function markView() {
  const here = location.hash.split("/")[1] || "";
  for (const each of document.querySelectorAll("#views a")) {
    const own = each.getAttribute("href").slice(2);
    if (own === here || (own === "" && here === "p")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
}

function askToken(why) {
  shown.number += 1;
  document.title = "Token · Wherry";
  const field = make("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const enter = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return field.focus();
    keepToken(field.value.trim());
    begin();
    return open();
  };
  swap(main, make("form", { class: "token", on: { submit: enter } },
    make("h1", {}, "This server wants a token"),
    why ? make("p", { class: "problem", role: "alert" }, why) : null,
    make("p", {}, "The terminal in which ", make("code", {}, "wherry serve"), " runs prints an address with a token. Open that address, or paste the token here."),
    make("p", { class: "field" }, make("label", { for: "token" }, "Token"), field),
    make("p", {}, make("button", { type: "submit", class: "primary" }, "Enter"))));
  field.focus();
}

let watching = false;
let soon = 0;

function begin() {
  if (watching || !readToken()) return;
  watching = true;
  watch(happen, tellLink).then(() => { watching = false; });
}

function happen({ event, pipeline, facts }) {
  if (event === "still_here") return;
  if (noteEvent(event, pipeline, facts) && shown.data && shown.view.live?.(shown.data, pipeline)) requestDraw();
  if (event === "batch_settled" || event === "batch_planned" || event === "batch_decided") return;
  clearTimeout(soon);
  soon = setTimeout(page.refresh, 300);
}

let drawn = 0;

function requestDraw() {
  if (drawn) return;
  drawn = setTimeout(() => {
    drawn = 0;
    page.redraw();
  }, 150);
}

function tellLink(there) {
  if (!readToken()) return swap(status);
  const leave = button("Forget the token", () => { dropToken(); askToken(""); }, { kind: "plain" });
  if (there) return swap(status, make("span", { class: "state good" }, make("span", { class: "mark", "aria-hidden": "true" }, "●"), "live"), leave);
  return swap(status, make("span", { class: "state bad" }, make("span", { class: "mark", "aria-hidden": "true" }, "○"), "The server does not answer"), leave);
}

function keepNew() {
  let ticks = 0;
  setInterval(() => {
    ticks += 1;
    const every = shown.view?.every;
    if (every && ticks % every === 0 && !document.hidden) page.refresh();
    if (ticks % 10 === 0) renewTimes(main);
  }, 1000);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
  open();
});
takeToken();
open().then(begin);
keepNew();
