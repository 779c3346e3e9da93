// The runs of a pipeline, and what one run reported.

import { ask, path } from "./api.js";
import { button, link, make, section, table } from "./dom.js";
import { showFlow } from "./flow.js";
import { place } from "./overview.js";
import { showTimeline } from "./timeline.js";
import { count, duration, getError, percent, plural, rows, shorten, show, showState, showTime } from "./words.js";

const [NEWEST, OLDER] = [50, 200];
const STATUSES = ["", "succeeded", "failed", "stopped", "killed", "running"];
const chosen = { name: "", status: "", runs: [], cursor: "", wants: false };

// The newest runs are asked for again and again, and older ones once: `runs` has all that were read, up to `cursor`.
export async function fetchRuns(name) {
  if (chosen.name !== name) choose({ name, status: "" });
  const { status, cursor, wants } = chosen;
  chosen.wants = false;
  const read = (more) => ask(path("pipelines", name, "runs"), { status, ...more });
  const newest = await read({ limit: NEWEST });
  const older = wants && cursor ? await read({ limit: OLDER, cursor }) : null;
  if (chosen.name !== name || chosen.status !== status) return newest;
  keep(newest, chosen.cursor === cursor ? older : null);
  return { runs: chosen.runs, cursor: chosen.cursor };
}

function choose(changes) {
  Object.assign(chosen, { runs: [], cursor: "", wants: false }, changes);
}

function keep(newest, older) {
  const last = chosen.runs.findIndex((each) => each.run === newest.runs.at(-1)?.run);
  if (last < 0) return Object.assign(chosen, { runs: newest.runs, cursor: newest.cursor });
  const kept = [...newest.runs, ...chosen.runs.slice(last + 1), ...(older?.runs ?? [])];
  return Object.assign(chosen, { runs: kept, cursor: older ? older.cursor : chosen.cursor });
}

export function showRuns({ runs, cursor }, name, page) {
  const only = make("select", { id: "status", on: { change: (event) => { choose({ status: event.target.value }); page.renew(); } } },
    STATUSES.map((each) => make("option", { value: each, selected: each === chosen.status }, each || "any state")));
  return section("Runs",
    make("div", { class: "filters" }, make("label", { for: "status" }, "State"), only),
    showOutcomes(runs, name),
    runs.length ? listRuns(runs, name) : make("p", { class: "dim" }, "There is no such run."),
    runs.length > NEWEST || cursor ? showOlder(runs, cursor, page) : null);
}

function showOlder(runs, cursor, page) {
  const said = `${cursor ? "" : "All "}${plural(runs.length, "run")} are shown, back to `;
  const more = button("Older runs", () => { chosen.wants = true; page.renew(); });
  return make("div", { class: "acts older" }, cursor ? more : null,
    make("span", { class: "dim", role: "status", tabindex: cursor ? null : -1, "data-key": cursor ? null : "Older runs" }, said, showTime(runs.at(-1).started_at)));
}

// Each run as a small bar, the oldest first: how long it took, and how it ended.
function showOutcomes(runs, name) {
  const some = runs.filter((each) => each.seconds !== null).slice(0, 60).reverse();
  if (some.length < 3) return null;
  const most = Math.max(...some.map((each) => each.seconds));
  const bars = make("ol", { class: "outcomes", "aria-label": `How long the last ${some.length} runs took` }, some.map((each) => {
    const bar = make("a", { href: `#/${place(name, "runs", each.run)}`, class: each.status, title: `${each.status}, ${duration(each.seconds)}`, "aria-label": `Run ${each.run.slice(0, 8)}: ${each.status}, ${duration(each.seconds)}`, tabindex: -1 });
    bar.style.setProperty("--high", `${Math.max(8, Math.round((100 * each.seconds) / most))}%`);
    return make("li", {}, bar);
  }));
  return make("figure", {}, bars, make("figcaption", { class: "dim small" }, `How long the last ${count(some.length)} runs took, the newest at the right. The longest took ${duration(most)}.`));
}

function listRuns(runs, name) {
  const head = ["State", "Began", { name: "Took", number: true }, { name: "Batches", number: true }, { name: "Read", number: true }, { name: "Filtered", number: true }, { name: "Refused", number: true }, "Reason or error", "Run"];
  return table("Runs", head, runs.map((each) => [
    showState(each.status), showTime(each.started_at, { relative: true }), duration(each.seconds), count(each.batches), count(each.read), count(each.filtered),
    each.nacked ? make("span", { class: "warned" }, count(each.nacked)) : count(each.nacked),
    shorten(getError(each.error)?.message || each.reason, 90), link(place(name, "runs", each.run), each.run.slice(0, 8), "id"),
  ]), { kind: "cards" });
}

export function showRun(run, name, status) {
  const report = run.report;
  const own = run.definition === status.hash;
  return [
    make("div", { class: "title" }, make("h2", {}, `Run ${run.run.slice(0, 8)}`), showState(run.status)),
    make("dl", { class: "facts" }, [
      ["Began", showTime(run.started_at, { relative: true })], ["Ended", showTime(run.ended_at)], ["Took", duration(run.seconds)], ["Batches", count(run.batches)],
      ["Read", count(run.read)], ["Filtered", count(run.filtered)], ["Refused", count(run.nacked)], ["Reason", run.reason || "–"], ["Host", run.host || "–"],
      ["Definition", [make("code", {}, run.definition || "–"), own ? "" : " (the pipeline has a newer one)"]],
    ].map(([what, value]) => make("div", {}, make("dt", {}, what), make("dd", {}, value)))),
    showError(report?.error || run.error, report?.snapshot),
    report ? null : make("p", {}, run.status === "killed" ? "The run's process was killed, so that its row counts are not known." : "The run has not ended: its row counts are not known yet."),
    report && own ? section("Where the rows went", showFlow(status.definition, report)) : null,
    report ? showReport(report) : null,
  ];
}

function showError(given, kept) {
  const error = getError(given);
  if (!error) return null;
  const where = [error.code, error.stage && `stage ${error.stage}`, error.lane && `lane ${error.lane}`].filter(Boolean).join(", ");
  return section("Why it failed", make("div", { class: "need bad" },
    make("p", { class: "what pre" }, error.message), where ? make("p", { class: "dim small" }, where) : null,
    error.hint ? make("p", { class: "todo pre" }, make("span", { class: "dim" }, "To do: "), error.hint) : null,
    kept?.rows?.length ? make("details", { "data-key": "kept" }, make("summary", {}, `Rows of batch ${kept.number} of lane ${kept.lane}`), make("pre", {}, kept.rows.map(show).join("\n"))) : null));
}

export function showReport(report) {
  if (!report.batches && !report.read) return make("p", { class: "dim" }, "No batch was processed in this run.");
  return [
    showBalance(report),
    make("div", { class: "pair" }, section("Rows by destination", listDestinations(report)), section("Rows by stage", (report.stages || []).length ? listStages(report.stages) : [])),
    showTimeline(report),
    section("Why rows were refused", (report.causes || []).length ? make("ul", { class: "plain" }, report.causes.map((each) =>
      make("li", {}, make("strong", {}, rows(each.rows)), ` ${each.stage || each.destination}: `, describeCause(each)))) : []),
    section("Rules", (report.quality || []).length ? table("Rules", ["Stage", "Rule", { name: "Passed", number: true }, { name: "Batches that failed it", number: true }],
      report.quality.map((each) => [each.stage, each.rule, percent(each.share), `${count(each.failed)} of ${count(each.batches)}`]), { kind: "cards" }) : []),
    section("Notices", (report.notices || []).map((each) => make("p", { class: "pre" }, each))),
  ];
}

function describeCause({ form, problem, example }) {
  return form ? [problem, make("span", { class: "dim" }, ` such as ${example}`)] : example || problem;
}

function showBalance({ balanced }) {
  if (balanced === true) return make("p", { class: "calm" }, make("span", { "aria-hidden": "true", class: "mark" }, "✓"), "All counts balance: each row that was read is delivered, filtered or refused.");
  return make("p", { class: "problem" }, balanced === false ? "The counts do not balance. Start an audit to see which rows are not where they should be." : "Some rows could not be counted.");
}

function listDestinations(report) {
  const owed = Object.values(report.destinations).some((each) => each.owed);
  const names = ["Read", "Filtered", "Refused", "Delivered", ...(owed ? ["Batches owed"] : [])].map((name) => ({ name, number: true }));
  return table("Rows by destination", ["To", ...names], Object.entries(report.destinations).map(([to, each]) => [
    to, count(each.read ?? report.read), count(each.filtered), count(each.nacked), count(each.delivered), ...(owed ? [count(each.owed)] : [])]), { kind: "numbers" });
}

function listStages(stages) {
  const names = ["In", "Filtered", "Refused", "Out"].map((name) => ({ name, number: true }));
  return table("Rows by stage", ["Stage", ...names], stages.map((each) => [each.stage, count(each.in), count(each.filtered), count(each.nacked), count(each.out)]), { kind: "numbers" });
}
