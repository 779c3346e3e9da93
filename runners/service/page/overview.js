// The first view: what needs a person, and then each pipeline.

import { ask, path } from "./api.js";
import { holdSchedule, resume, startRun } from "./changes.js";
import { link, make, section, swap, table } from "./dom.js";
import { isFor, namePlan } from "./plans.js";
import { offer } from "./rights.js";
import { count, describeWaiting, getError, getState, plural, rows, showState, showTime } from "./words.js";

const MOST_REFUSED = 5;
const ORDER = ["failed", "killed", "paused", "running", "stopped", "never_run", "idle"];
const chosen = { text: "", state: "" };

export const overview = {
  title: "Pipelines",
  every: 5,
  async fetch() {
    const [found, planned] = await Promise.all([ask(path("pipelines")), ask(path("plans"))]);
    return { ...found, plans: planned.plans };
  },
  draw(found, page) {
    const needs = listNeeds(found, page);
    page.setTitle(needs.length ? `${needs.length} need${needs.length === 1 ? "s" : ""} you` : "Pipelines");
    return [make("h1", {}, "Pipelines"), showNeeds(needs, found), showPipelines(found, page)];
  },
};

export function place(name, ...more) {
  return ["p", name, ...more].map(encodeURIComponent).join("/");
}

function listNeeds({ pipelines, broken, plans }, page) {
  const planned = plans.filter(isFor).map((each) => ({
    rank: -1, state: "planned", name: each.pipeline, what: "A plan", key: `plan ${each.plan}`, message: `${each.by} plans: ${namePlan(each)}.`,
    todo: ["See what it would do. Approve it, or leave it: it ends ", showTime(each.expires_at, { relative: true }), "."], acts: [link("plans", "See the plan", "do")],
  }));
  const files = Object.entries(broken).map(([file, message]) => ({
    rank: 0, state: "broken", what: file, message, todo: "Mend the file. The server reads it again by itself.", key: `broken ${file}`,
  }));
  return [...planned, ...files, ...pipelines.flatMap((each) => listNeedsOf(each, page))].sort((a, b) => a.rank - b.rank || (b.size || 0) - (a.size || 0));
}

function listNeedsOf(each, page) {
  const { pipeline: name, state, last_run: last, held, refused } = each;
  const error = getError(last?.error);
  const run = last ? link(place(name, "runs", last.run), "See the run", "do") : null;
  const start = offer("start_run", "Start a run", () => startRun(name, page.refresh), { label: `Start a run of ${name}` });
  const causes = link(place(name, "refused"), "See the refused rows", "do");
  const found = [];
  const add = (facts) => found.push({ name, at: last?.at, key: `${facts.state} ${name}`, ...facts });
  if (state === "failed") add({ rank: 1, state, message: error?.message || last?.reason, todo: error?.hint || "See the run, mend the cause, and start a run.", acts: [run, start] });
  if (state === "killed") add({ rank: 1, state, message: last?.reason || "The process of its run ended without a report.", todo: "Start a run. It finishes the open batches first.", acts: [start, run] });
  if (state === "paused") {
    const again = offer("resume_pipeline", "Resume", () => resume(name, page.refresh), { label: `Resume ${name}` });
    add({ rank: 2, state, message: error?.message || last?.reason || "A limit on refused rows paused it.", todo: "See the refused rows, decide what becomes of them, and resume.", acts: [causes, again] });
  }
  if (held !== null) {
    const release = offer("hold_schedule", "Release", () => holdSchedule(name, false, page.refresh), { label: `Release the schedule of ${name}` });
    add({ rank: 3, state: "held", at: null, message: `No run begins by itself: ${held || "no reason was given"}`, todo: "Release the schedule when the cause is gone.", acts: [release] });
  }
  if (refused && state !== "paused") add({ rank: 4, state: "refused", at: null, size: refused, message: `${rows(refused)} wait${refused === 1 ? "s" : ""} in the DLQ.`, todo: "See why. Replay them once the cause is mended, or discard them.", acts: [causes] });
  return found;
}

function showNeeds(needs, { pipelines }) {
  if (!needs.length) {
    return make("p", { class: "calm" }, make("span", { "aria-hidden": "true", class: "mark" }, "✓"),
      pipelines.length ? "Nothing needs you." : "There is no pipeline in this folder yet. Make one with `wherry init`.");
  }
  const refused = needs.filter((each) => each.state === "refused");
  const others = needs.filter((each) => each.state !== "refused");
  const more = refused.slice(MOST_REFUSED);
  return section(`Needs you (${count(needs.length)})`,
    make("ul", { class: "needs" }, [...others, ...refused.slice(0, MOST_REFUSED)].map(showNeed)),
    more.length ? make("details", { "data-key": "more refused" },
      make("summary", {}, `${plural(more.length, "more pipeline")} with refused rows`),
      make("ul", { class: "needs" }, more.map(showNeed))) : null);
}

function showNeed({ name, state, what, message, todo, acts = [], at }) {
  const [first, ...rest] = String(message || "").split("\n");
  return make("li", { class: `need ${getState(state).kind}` },
    make("div", { class: "head" }, showState(state), make("strong", {}, name ? link(place(name), name) : what),
      at ? showTime(at, { relative: true }) : null),
    acts.length ? make("div", { class: "acts" }, acts) : null,
    make("p", { class: "what" }, first),
    make("p", { class: "todo" }, make("span", { class: "dim" }, "To do: "), todo),
    rest.join("").trim() ? make("details", { "data-key": `all ${state} ${name || what}` }, make("summary", {}, "All of the message"), make("pre", {}, rest.join("\n"))) : null);
}

function showPipelines({ pipelines }, page) {
  if (!pipelines.length) return null;
  const list = make("div", { id: "list" });
  const draw = () => swap(list, showList(pipelines, page));
  const filter = make("input", {
    type: "search", id: "filter", placeholder: "Name, file or table", value: chosen.text, autocomplete: "off",
    on: { input: (event) => { chosen.text = event.target.value; draw(); } },
  });
  const numbers = ORDER.map((state) => [state, pipelines.filter((each) => each.state === state).length]).filter(([, number]) => number);
  const chips = numbers.map(([state, number]) => make("button", {
    type: "button", class: `chip ${getState(state).kind}`, "aria-pressed": String(chosen.state === state), "data-key": `chip ${state}`,
    on: { click: (event) => { chosen.state = chosen.state === state ? "" : state; press(event.currentTarget.parentNode); draw(); } },
    "data-state": state,
  }, count(number), " ", getState(state).text));
  draw();
  return section(`Every pipeline (${count(pipelines.length)})`,
    make("div", { class: "filters" }, make("label", { for: "filter" }, "Filter"), filter,
      make("div", { class: "chips", role: "group", "aria-label": "Only with this state" }, chips)), list);
}

function press(chips) {
  for (const each of chips.children) each.setAttribute("aria-pressed", String(each.dataset.state === chosen.state));
}

function showList(pipelines, page) {
  const text = chosen.text.toLowerCase();
  const wanted = pipelines.filter((each) => (!chosen.state || each.state === chosen.state) && [each.pipeline, each.file, ...each.reads, ...each.writes].some((name) => name.toLowerCase().includes(text)));
  wanted.sort((a, b) => rank(a) - rank(b) || a.pipeline.localeCompare(b.pipeline, "en", { numeric: true }));
  if (!wanted.length) return make("p", { class: "dim" }, "No pipeline is like that.");
  const head = ["State", "Pipeline", { name: "Waiting", number: true }, { name: "Refused", number: true }, "Last run", { name: "Read", number: true }, "Next run", ""];
  return table("Pipelines", head, wanted.map((each) => showLine(each, page)), { kind: "cards list" });
}

function rank({ state }) {
  const at = ORDER.indexOf(state);
  return at < 0 ? ORDER.length : at < 4 ? at : 4;
}

function showLine(each, page) {
  const { pipeline: name, state, waiting, refused, last_run: last, held, due, schedule } = each;
  return [
    showState(state),
    make("span", { class: "name" }, link(place(name), name)),
    waiting === null ? make("span", { class: "dim", title: "Only Spark knows what waits." }, "not known") : describeWaiting(waiting) || make("span", { class: "dim" }, "nothing"),
    refused ? link(place(name, "refused"), count(refused), "warned") : make("span", { class: "dim" }, refused === null ? "not known" : "0"),
    last ? showTime(last.at, { relative: true }) : make("span", { class: "dim" }, "–"),
    last?.read === null || last?.read === undefined ? make("span", { class: "dim" }, "–") : count(last.read),
    held !== null ? showState("held") : due ? make("span", { title: schedule }, showTime(due)) : make("span", { class: "dim" }, schedule || "by hand"),
    state === "running" ? link(place(name), "Watch", "do") : offer("start_run", "Start", () => startRun(name, page.refresh), { label: `Start a run of ${name} now`, kind: "small" }),
  ];
}
