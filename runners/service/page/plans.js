// Changes that an agent planned, and that wait for a person: what each would do, and its approval.

import { Problem, ask, path } from "./api.js";
import { openDialog, showProblem } from "./dialogs.js";
import { link, make } from "./dom.js";
import { place } from "./overview.js";
import { showResult } from "./previews.js";
import { getName, mayDo, offer } from "./rights.js";
import { formatMoment, plural, show, showState, showTime } from "./words.js";

const NAMES = {
  start_run: "Start a run", stop_run: "Stop the run", resume_pipeline: "Resume",
  move_offsets: "Move the offsets", change_dlq: "Change the DLQ limits", replay_rows: "Replay refused rows", discard_rows: "Discard refused rows",
  run_repair: "Repair", run_backfill: "Backfill", run_redo: "Redo a file", cancel_task: "Cancel a task",
  put_definition: "Change the definition", delete_definition: "Delete the definition", get_definition: "Read the definition", validate_definition: "Check a definition",
};
const STATES = { waiting: "planned", approved: "approved", carried_out: "carried_out" };
const DANGERS = ["discard_rows", "move_offsets", "run_redo", "delete_definition", "stop_run"];
const HIDDEN = ["pipeline", "preview", "plan"];
const LONGEST = 2000;
const ended = new Map();

export const plans = {
  title: "Plans",
  every: 3,
  async fetch() {
    const { plans: list } = await ask(path("plans"));
    return { plans: await Promise.all(list.map(complete)) };
  },
  draw({ plans: list }, page) {
    const waiting = list.filter((each) => each.state === "waiting").length;
    page.setTitle(waiting ? `${plural(waiting, "plan")} ${waiting === 1 ? "waits" : "wait"}` : "Plans");
    return [
      make("h1", {}, "Plans"),
      make("p", { class: "dim" }, "What agents of wherry mcp want to change. Nothing happens until you approve exactly that. A plan that you leave ends by itself."),
      list.length ? make("div", { class: "plans" }, list.map((each) => showPlan(each, page))) : make("p", { class: "calm" }, make("span", { "aria-hidden": "true", class: "mark" }, "✓"), "No plan waits."),
    ];
  },
};

export function namePlan({ operation, arguments: given }) {
  if (operation === "hold_schedule") return given.held ? "Hold the schedule" : "Release the schedule";
  return NAMES[operation] || operation.replaceAll("_", " ");
}

// Whether this person could approve it.
export function isFor({ by, right, state }) {
  return state === "waiting" && by !== getName() && mayDo("approve_plan", right);
}

// Adds what its preview found, and the stored text of a definition that it would change.
async function complete(plan) {
  return { ...plan, looked: await findPreview(plan.preview), stored: await findStored(plan) };
}

async function findPreview(preview) {
  if (!preview?.task) return { result: preview };
  const known = ended.get(preview.task);
  if (known) return known;
  const { state, doing, result, problem, ended_at: end } = await tryTo(ask(path("tasks", preview.task)));
  const looked = { works: !problem && !end, doing: doing || state, result, problem };
  if (end) ended.set(preview.task, looked);
  return looked;
}

async function findStored({ operation, pipeline }) {
  if (operation !== "put_definition" || !mayDo("get_definition")) return null;
  const { definition, problem } = await tryTo(ask(path("pipelines", pipeline, "definition")));
  return problem ? null : definition;
}

async function tryTo(answer) {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof Problem) || !error.status || error.status === 401) throw error;
    return { problem: { detail: error.message, hint: error.hint, code: error.code, status: error.status } };
  }
}

function showPlan(plan, page) {
  const { state, by, expires_at: until, approved_by: approver } = plan;
  const name = plan.pipeline ? [" of ", link(place(plan.pipeline), plan.pipeline)] : "";
  return make("article", { class: `plan ${state}`, "aria-label": describe(plan) },
    make("div", { class: "head" }, make("h2", {}, namePlan(plan), name), showState(STATES[state])),
    make("p", { class: "dim" }, "Planned by ", make("strong", {}, by), state === "carried_out" ? "." : [". It ends at ", showTime(until, { relative: true }), "."], approver ? ` Approved by ${approver}.` : ""),
    showDetails(plan),
    state === "waiting" ? showActs(plan, page) : state === "approved" ? make("p", { class: "small dim" }, `${by} may carry it out once.`) : null);
}

function describe(plan) {
  return `${namePlan(plan)}${plan.pipeline ? ` of ${plan.pipeline}` : ""}, planned by ${plan.by}`;
}

function showActs(plan, page) {
  if (plan.looked.works) return make("p", { class: "working", role: "status" }, make("span", { class: "spin", "aria-hidden": "true" }), `The preview works: ${plan.looked.doing}. You can approve the plan once it is there.`);
  if (plan.by === getName()) return make("p", { class: "small dim" }, "This is your own plan. Another person approves it.");
  return make("div", { class: "acts" },
    offer("approve_plan", "Approve", () => approve(plan, page.refresh), { right: plan.right, kind: "primary", label: `Approve: ${describe(plan)}`, key: `approve ${plan.plan}` }),
    make("span", { class: "small dim" }, "Or leave it: nothing happens then."));
}

function approve(plan, changed) {
  const until = formatMoment(new Date(plan.expires_at));
  openDialog({
    title: `Approve: ${namePlan(plan)}${plan.pipeline ? ` of ${plan.pipeline}` : ""}`,
    says: [`${plan.by} planned this, and may then carry out exactly this, once, until ${until}. It is done with your right, and the log has both names.`],
    body: make("div", { class: "asked" }, showDetails(plan)),
    verb: "Approve this change", leave: "Leave it", danger: DANGERS.includes(plan.operation), asks: false, changed,
    request: () => ({ method: "POST", path: path("plans", plan.plan, "approve"), body: { digest: plan.digest } }),
    describe: () => `Approved. ${plan.by} may carry it out once, until ${until}.`,
  });
}

function showDetails(plan) {
  return [showArguments(plan), showPreview(plan)];
}

// All arguments. Those without a value are named, so that a person sees what does not narrow the change.
function showArguments({ arguments: given, stored }) {
  const isEmpty = (value) => value === null || value === "" || value === false || value === 0 || (typeof value === "object" && !Object.keys(value).length);
  const named = Object.entries(given).filter(([name]) => !HIDDEN.includes(name));
  const some = named.filter(([, value]) => !isEmpty(value));
  const empty = named.filter(([, value]) => isEmpty(value)).map(([name]) => name);
  return [
    make("dl", { class: "arguments" }, some.filter(([name]) => name !== "definition").map(([name, value]) => make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, showValue(name, value))))),
    given.definition ? showDefinition(given.definition, stored) : null,
    empty.length ? make("p", { class: "small dim" }, `Without a value: ${empty.join(", ").replaceAll("_", " ")}.`) : null,
  ];
}

function showValue(name, value) {
  if (name === "reason") return String(value);
  if (name === "expected_digest") return make("code", { title: value }, `${value.slice(0, 12)}…`);
  const text = typeof value === "object" ? JSON.stringify(value, null, 1) : show(value);
  return make("code", { class: "pre" }, text);
}

function showPreview({ operation, pipeline, arguments: given, looked }) {
  if (looked.works) return null;
  if (looked.problem) return make("div", { class: "preview" }, make("h3", {}, "The preview failed"), showProblem({ message: looked.problem.detail, ...looked.problem }));
  const found = showResult(operation, looked.result);
  if (!found) return make("p", { class: "small dim" }, "This change has no preview.");
  return make("div", { class: "preview" }, make("h3", {}, "What it would do"), found, linkRows({ operation, pipeline, given }));
}

function linkRows({ operation, pipeline, given }) {
  if (operation !== "discard_rows" && operation !== "replay_rows") return null;
  const { ids, code, stage } = given;
  const to = ids.length === 1 ? place(pipeline, "row", ids[0]) : code && stage ? place(pipeline, "refused", code, stage) : place(pipeline, "refused");
  return make("p", {}, link(to, "See the refused rows"));
}

function showDefinition(text, stored) {
  if (stored === null || stored === undefined) return make("pre", {}, text);
  const lines = compare(stored.trimEnd().split("\n"), text.trimEnd().split("\n"));
  if (!lines) return [make("p", {}, "The definition is too long to be compared here. This is the new one:"), make("pre", {}, text)];
  return [make("p", { class: "small dim" }, "The stored definition with its changes. A line with + is new, and a line with - goes."),
    make("pre", { class: "changes" }, lines.map(([mark, line]) => make("span", { class: { "+": "add", "-": "less" }[mark] || null }, `${mark} ${line}\n`)))];
}

// The lines of both texts in order: those that go, those that are new, and those that stay.
function compare(before, after) {
  if (before.length > LONGEST || after.length > LONGEST) return null;
  const common = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push([" ", before[i]]);
      i += 1;
      j += 1;
    } else if (j >= after.length || (i < before.length && common[i + 1][j] >= common[i][j + 1])) {
      lines.push(["-", before[i]]);
      i += 1;
    } else {
      lines.push(["+", after[j]]);
      j += 1;
    }
  }
  return lines;
}
