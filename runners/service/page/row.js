// One refused row: as it was read, before and after each stage, and what to do with it.

import { ask, change, followTask, makeKey, path, Problem } from "./api.js";
import { showProblem } from "./dialogs.js";
import { button, link, make, section, swap, table } from "./dom.js";
import { place } from "./overview.js";
import { describeFate, makeActs } from "./refused.js";
import { plural, show, showTime } from "./words.js";

const tried = new Map();

export async function fetchRow(name, id) {
  const { rows } = await ask(path("pipelines", name, "dlq", "rows"), { ids: id, limit: 1 });
  if (!rows.length) throw new Problem(404, { detail: "The DLQ does not have this row.", hint: "Its time may be over. See the causes for the rows that are there." });
  return rows[0];
}

export function showRow(row, name, page) {
  const by = row.stage || row.destination;
  const waits = !row.replayed && !row.discarded;
  const today = make("div", { class: "today" });
  const known = tried.get(row.id);
  swap(today, known ? showToday(known, row) : offerTry(today, row, name));
  return [
    make("p", {}, link(place(name, "refused"), "All causes"), " / ", link(place(name, "refused", row.code, by), `${row.code} by ${by}`)),
    make("div", { class: "need warn" }, make("p", { class: "what pre" }, row.message),
      make("p", { class: "dim small" }, `${row.code} by ${by}, batch ${row.number} of lane ${row.lane}${row.part ? `, from ${row.part}` : ""}, `, showTime(row.nacked_at, { relative: true }), `, run `, link(place(name, "runs", row.run), row.run.slice(0, 8)), `. It ${describeFate(row) === "waits" ? "waits" : `was ${describeFate(row)}`}.`)),
    row.replays ? make("p", {}, "It is another try of ", link(place(name, "row", row.replays), "an earlier row"), ".") : null,
    row.delivered_to?.length ? make("p", {}, `Already delivered to ${row.delivered_to.join(", ")}.`) : null,
    waits ? make("div", { class: "acts" }, ...makeActs({ ids: [row.id] }, 1, name, "Only this row", page)) : null,
    section("What was read, and what was refused", compare([["As it was read", row.original], [`Before ${by}, which refused it`, row.row]], row)),
    section("With the stages of today", today),
  ];
}

// A table with a column for each step. A value that differs from the step before is marked.
function compare(steps, row) {
  const isRow = (values) => values !== null && typeof values === "object";
  const columns = [...new Set(steps.flatMap(([, values]) => (isRow(values) ? Object.keys(values) : [])))];
  const read = (values, column) => (isRow(values) ? values[column] : undefined);
  const named = new Set(String(row.message).match(/\w+/g) || []);
  return table("Values at each step", ["Column", ...steps.map(([name]) => name)], columns.map((column) => [
    make("strong", { class: named.has(column) ? "warned" : null }, column),
    ...steps.map(([, values], at) => showValue(read(values, column), at ? read(steps[at - 1][1], column) : read(values, column))),
  ]), { kind: "cards" });
}

function showValue(value, before) {
  if (value === undefined) return make("span", { class: "dim" }, "–");
  const changed = JSON.stringify(value) !== JSON.stringify(before);
  return [make("span", { class: `value${changed ? " changed" : ""}` }, typeof value === "string" ? JSON.stringify(value) : show(value)), changed ? make("span", { class: "mark small" }, " changed") : null];
}

function offerTry(today, row, name) {
  const go = button("Try it now", () => tryRow(today, row, name), { kind: "second" });
  return [make("p", {}, "The row passes each stage of the definition as it is now. Nothing is written. The first try starts Spark, which can take half a minute."), go];
}

async function tryRow(today, row, name) {
  const say = (text) => swap(today, make("p", { class: "working", role: "status" }, make("span", { class: "spin", "aria-hidden": "true" }), text));
  say("Trying the row…");
  try {
    const task = await change("POST", path("pipelines", name, "dlq", "explain"), { id: row.id }, makeKey());
    const ended = await followTask(task, ({ doing, state }) => say(doing || state), () => today.isConnected);
    if (ended.problem) throw new Problem(ended.problem.status, ended.problem);
    if (!ended.result) return;
    tried.set(row.id, ended.result);
    swap(today, showToday(ended.result, row));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    swap(today, showProblem(error), offerTry(today, row, name));
  }
}

function showToday(found, row) {
  const { today, why_not: why, steps = [] } = found;
  const alike = found.alike ? make("p", { class: "dim" }, `${plural(found.alike, "other row has", "other rows have")} the same code from the same stage.`) : null;
  if (!today) return [make("p", {}, `It cannot be tried: ${why}.`), alike];
  return [showVerdict(today), steps.length ? compare(steps.map(({ stage, outcome, row: values }) => [nameStep(stage, outcome), outcome === "refused" ? null : values]), row) : null, alike];
}

function nameStep(stage, outcome) {
  if (!stage) return "As it was read";
  return outcome === "kept" ? `After ${stage}` : `${stage}: ${outcome}`;
}

function showVerdict({ outcome, stage, message, destinations, filtered_for: filtered }) {
  if (outcome === "rejected") return make("p", { class: "problem" }, `Still refused by ${stage}: ${message}`);
  if (outcome === "filtered") return make("p", { class: "warning" }, `It would be filtered by ${stage || "a stage"}, and no destination would get it.`);
  if (outcome === "changed") return make("p", {}, `It reaches ${stage}, which makes other rows from it.`);
  const lost = Object.entries(filtered || {}).map(([to, by]) => ` ${by} filters it for ${to}.`);
  return make("p", { class: "calm" }, make("span", { "aria-hidden": "true", class: "mark" }, "✓"), `It passes now: ${destinations.join(", ")} would get it. Replay it.`, lost);
}
