// One pipeline: its head with what can be done, and its views.

import { Problem, ask, path } from "./api.js";
import { audit, backfill, changeLimits, holdSchedule, moveOffsets, redo, repair, resume, startRun, stopRun } from "./changes.js";
import { showProblem } from "./dialogs.js";
import { button, link, make, section, table } from "./dom.js";
import { listDestinations, showFlow } from "./flow.js";
import { findLive } from "./live.js";
import { place } from "./overview.js";
import { showQuality } from "./quality.js";
import { fetchCause, fetchCauses, showCause, showCauses } from "./refused.js";
import { offer } from "./rights.js";
import { fetchRow, showRow } from "./row.js";
import { fetchRuns, showReport, showRun, showRuns } from "./runs.js";
import { count, describeWaiting, getError, rows, show, showState, showTime } from "./words.js";

// A view of a pipeline: what it fetches beside the status, and how it draws that.
function makeView(tab, fetch, draw, more = {}) {
  return {
    every: 5,
    async fetch(name, ...words) {
      const [status, list, found] = await Promise.all([ask(path("pipelines", name)), ask(path("pipelines")), fetch(name, ...words).catch(toTrouble)]);
      return { status, entry: list.pipelines.find((each) => each.pipeline === name) || null, found };
    },
    draw: ({ status, entry, found }, page, name, ...words) => [
      ...showHead(status, entry, name, tab, page),
      found.trouble && !more.takesTrouble ? showProblem(found.trouble) : draw(found, { status, entry, page, name, words })],
    ...more,
  };
}

// A problem with one part of a view. The head and the other views stay in reach.
function toTrouble(error) {
  if (error instanceof Problem && error.status && error.status !== 401) return { trouble: { message: error.message, hint: error.hint, code: error.code } };
  throw error;
}

export const flowOf = makeView("", (name) => ask(path("pipelines", name, "runs", "last")), drawFlow, { live: ({ status }, pipeline) => status.pipeline === pipeline, takesTrouble: true });
export const runsOf = makeView("runs", fetchRuns, (found, { name, page }) => showRuns(found, name, page));
export const runOf = makeView("runs", (name, run) => ask(path("pipelines", name, "runs", run)), (run, { name, status }) => showRun(run, name, status));
export const refusedOf = makeView("refused", fetchCauses, (found, { name, page }) => showCauses(found, name, page));
export const causeOf = makeView("refused", fetchCause, (found, { name, page, words }) => showCause(found, name, words, page));
export const rowOf = makeView("refused", fetchRow, (found, { name, page }) => showRow(found, name, page));
export const qualityOf = makeView("quality", (name) => ask(path("pipelines", name, "quality"), { limit: 30 }), (found, { name }) => showQuality(found, name));
export const offsetsOf = makeView("offsets", (name) => Promise.all([ask(path("pipelines", name, "offsets")), ask(path("pipelines", name, "dlq")).catch(toTrouble)]), drawOffsets);

const TABS = [["", "Flow"], ["runs", "Runs"], ["refused", "Refused"], ["quality", "Quality"], ["offsets", "Offsets"]];

function showHead(status, entry, name, tab, page) {
  const waits = status.dlq?.unreplayed;
  return [
    make("nav", { class: "crumbs", "aria-label": "Where you are" }, link("", "Pipelines"), make("span", { "aria-hidden": "true" }, " / "), make("span", {}, name)),
    make("div", { class: "title" }, make("h1", {}, name), showState(status.state), entry?.held !== null && entry?.held !== undefined ? showState("held") : null),
    showTrouble(status, entry),
    tab === "" ? showFacts(status, entry) : null,
    showActs(status, entry, name, page),
    make("nav", { class: "tabs", "aria-label": `Views of ${name}` }, TABS.map(([to, text]) =>
      make("a", { href: `#/${place(name)}${to ? `/${to}` : ""}`, "aria-current": to === tab ? "page" : null }, text, to === "refused" && waits ? make("span", { class: "badge" }, count(waits)) : null))),
  ];
}

function showTrouble(status, entry) {
  const error = getError(status.last_run?.error);
  const said = [];
  if (status.state === "paused") said.push(["warn", `Paused: ${status.paused?.reason || "a limit on refused rows was exceeded"}`, "See the refused rows, decide what becomes of them, and resume."]);
  if (status.state === "failed") said.push(["bad", error?.message || status.last_run?.reason || "The last run failed.", error?.hint || "See the run, mend the cause, and start a run."]);
  if (status.state === "killed") said.push(["bad", status.last_run?.reason || "The process of the last run ended without a report.", "Start a run. It finishes the open batches first."]);
  if (status.stopping) said.push(["warn", `The run was asked to stop: ${status.stopping}`, status.forced ? "It cancels the batches in flight." : "It finishes the batches in flight."]);
  if (entry?.held) said.push(["warn", `The schedule is held: ${entry.held}`, "Release it when the cause is gone."]);
  if (status.removed?.length) said.push(["warn", `The definition no longer has: ${status.removed.map(show).join(", ")}`, "Its old rows stay where they are."]);
  return said.map(([kind, what, todo]) => make("div", { class: `need ${kind}` }, make("p", { class: "what pre" }, what), make("p", { class: "todo pre" }, make("span", { class: "dim" }, "To do: "), todo)));
}

function showFacts(status, entry) {
  const last = status.last_run;
  const facts = [
    ["Waiting", entry ? describeWaiting(entry.waiting) || (entry.waiting ? "nothing" : "not known") : "not known"],
    ["Refused rows that wait", status.dlq?.unreplayed === null ? "not known" : count(status.dlq?.unreplayed ?? 0)],
    ["Last run", last ? [showTime(last.at, { relative: true })] : "none"],
    ["Next run", entry?.due ? showTime(entry.due, { relative: true }) : "by hand"],
    ["Schedule", entry?.schedule || "none"],
    ["Group", status.definition?.run?.group || null],
    ["Open batches", count(status.open.length)],
    ["After", entry?.after?.length ? entry.after.map((each, at) => [at ? ", " : "", link(place(each), each)]) : null],
    ["Definition", [entry?.file || "", " ", make("code", {}, status.hash)]],
  ];
  return make("dl", { class: "facts" }, facts.filter(([, what]) => what !== null).map(([name, what]) => make("div", {}, make("dt", {}, name), make("dd", {}, what))));
}

function showActs(status, entry, name, page) {
  const runs = status.state === "running";
  const scheduled = entry?.schedule;
  const held = entry?.held !== null && entry?.held !== undefined;
  return make("div", { class: "acts", role: "group", "aria-label": `Change ${name}` },
    runs ? offer("stop_run", "Stop the run", () => stopRun(name, page.refresh), { kind: "danger" }) : offer("start_run", "Start a run", () => startRun(name, page.refresh), { kind: "primary" }),
    status.state === "paused" ? offer("resume_pipeline", "Resume", () => resume(name, page.refresh)) : null,
    held ? offer("hold_schedule", "Release the schedule", () => holdSchedule(name, false, page.refresh)) : scheduled ? offer("hold_schedule", "Hold the schedule", () => holdSchedule(name, true, page.refresh)) : null,
    button("Audit", () => audit(name)),
    offer("run_repair", "Repair", () => repair(name, page.refresh)),
    offer("run_backfill", "Backfill", () => backfill(name, listDestinations(status.definition), Object.keys(status.lanes || {}), page.refresh)),
    offer("run_redo", "Redo a file", () => redo(name, page.refresh)),
  );
}

function drawFlow(found, { status, name }) {
  const trouble = found.trouble && found.trouble.code !== "NOT_FOUND" ? showProblem(found.trouble) : null;
  const report = found.report || null;
  const live = status.state === "running" ? findLive(name) : null;
  return [
    trouble,
    section("Where the rows go", describeFlow(status, found, live, name), showFlow(status.definition, report, { live, runs: status.state === "running", waiting: status.dlq?.unreplayed })),
    report && !live ? showReport(report) : null,
    make("details", { class: "more", "data-key": "definition" }, make("summary", {}, "Definition"), make("pre", {}, JSON.stringify(status.definition, null, 2))),
  ];
}

function describeFlow(status, found, live, name) {
  if (status.state === "running") {
    if (!live) return make("p", {}, "A run works now. Its numbers come with its next batch, if it is a run of this server.");
    const doing = Object.values(live.doing).slice(-1)[0];
    return make("p", { role: "status" }, make("strong", {}, "Live: "), `${count(live.batches)} batches, ${rows(live.read)} read, ${count(live.refused)} refused since `, showTime(live.since), doing ? `. Now: ${doing}` : "");
  }
  if (!found.run) return make("p", { class: "dim" }, "It has not run yet, so that there are no numbers.");
  return make("p", { class: "dim" }, "Numbers of ", link(place(name, "runs", found.run), "the last run"), ", ", showTime(found.started_at, { relative: true }), ".");
}

function drawOffsets([lanes, limits], { name, page, status }) {
  const lines = Object.entries(lanes.lanes).map(([lane, each]) => [
    lane, count(each.number), describeLag(status.lanes?.[lane]), showTime(each.committed_at, { relative: true }), make("code", {}, show(each.offset)),
  ]);
  const move = offer("move_offsets", "Move the offsets", () => moveOffsets(name, lanes.lanes, page.refresh));
  return [
    section("How far each lane was read",
      lines.length ? table("Lanes", ["Lane", { name: "Batch", number: true }, "Behind", "Committed", "Offset"], lines, { kind: "cards" }) : make("p", { class: "dim" }, "No batch was processed yet."),
      lanes.open.length ? make("details", { "data-key": "open" }, make("summary", {}, `${count(lanes.open.length)} open batches`), make("pre", {}, lanes.open.map(show).join("\n"))) : null,
      make("div", { class: "acts" }, move)),
    section("Limits on refused rows", limits.trouble ? showProblem(limits.trouble) : showLimits(limits, name, page)),
  ];
}

function describeLag(lane) {
  if (lane?.behind) return lane.behind;
  return make("span", { class: "dim" }, lane?.lag ? "nothing" : "–");
}

function showLimits(limits, name, page) {
  return [
    make("p", {}, limits.window ? `A run stops when ${count(limits.threshold)} of its last ${count(limits.window)} rows were refused.` : "No number of refused rows stops a run."),
    Object.entries(limits.limits || {}).map(([what, limit]) => make("p", {}, `Limit on ${what}: `, make("code", {}, show(limit)))),
    limits.changed?.length ? make("p", { class: "dim" }, `Changed for the run that works now: ${limits.changed.join(", ")}.`) : null,
    make("div", { class: "acts" }, offer("change_dlq", "Change the limits", () => changeLimits(name, limits, page.refresh))),
  ];
}
