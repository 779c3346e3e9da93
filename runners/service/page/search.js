// The search: runs, batches and refused rows of all pipelines by their words.

import { ask, path } from "./api.js";
import { button, link, make, table } from "./dom.js";
import { place } from "./overview.js";
import { shorten, showState, showTime } from "./words.js";

const MOST = 50;
const KINDS = { run: "Runs", batch: "Batches", row: "Refused rows" };
const chosen = { text: "", kind: "", cursors: [], typed: null };

export const search = {
  title: "Search",
  async fetch(text = "") {
    if (text !== chosen.text) Object.assign(chosen, { text, cursors: [], typed: null });
    if (!text.trim()) return { hits: [], text };
    const pages = await Promise.all(["", ...chosen.cursors].map((cursor) => ask(path("search"), { text, kind: chosen.kind, cursor, limit: MOST })));
    return { text, hits: pages.flatMap((each) => each.hits), cursor: pages.at(-1).cursor, behind: pages[0].behind };
  },
  draw({ text, hits, cursor, behind }, page) {
    return [
      make("h1", {}, "Search"),
      makeForm(text, page),
      behind ? make("p", { class: "warned", role: "status" }, behind) : null,
      showHits(text, hits),
      cursor ? make("p", {}, button("Show more", () => { chosen.cursors.push(cursor); page.renew(); })) : null,
    ];
  },
};

function makeForm(text, page) {
  const words = make("input", { type: "search", id: "words", value: chosen.typed ?? text, autocomplete: "off", placeholder: "An error, a file or a value", on: { input: () => { chosen.typed = words.value; } } });
  const kind = make("select", { id: "kind" }, make("option", { value: "" }, "Everything"),
    Object.entries(KINDS).map(([value, name]) => make("option", { value, selected: value === chosen.kind }, name)));
  const find = (event) => {
    event.preventDefault();
    Object.assign(chosen, { kind: kind.value, cursors: [], typed: null });
    const to = `#/search/${encodeURIComponent(words.value.trim())}`;
    if (location.hash === to) page.renew();
    else location.hash = to;
  };
  return make("form", { class: "filters", role: "search", on: { submit: find } },
    make("label", { for: "words" }, "Words"), words, make("label", { for: "kind" }, "In"), kind, make("button", { type: "submit", class: "primary" }, "Search"));
}

function showHits(text, hits) {
  if (!text.trim()) return make("p", { class: "dim" }, "Runs, batches and refused rows of all pipelines are searched. The beginning of a word is enough.");
  if (!hits.length) return make("p", { role: "status" }, "Nothing has all of these words.");
  return table("Found", ["What", "Pipeline", "Status", "When", "Text"], hits.map((each) => [
    link(findPlace(each), describe(each)), link(place(each.pipeline), each.pipeline),
    each.kind === "run" ? showState(each.status) : each.status, showTime(each.at, { relative: true }), shorten(each.text, 160),
  ]), { kind: "cards" });
}

function findPlace({ kind, pipeline, name, run }) {
  return kind === "row" ? place(pipeline, "row", name) : run ? place(pipeline, "runs", run) : place(pipeline, "runs");
}

function describe({ kind, name }) {
  return kind === "row" ? `row ${name.split("/").pop()}` : `${kind} ${name.slice(0, 8)}`;
}
