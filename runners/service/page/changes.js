// Every change that the page offers, each with what it will do and what it did.

import { path } from "./api.js";
import { openDialog } from "./dialogs.js";
import { describeTask, showAudit, showBackfill, showMove, showRedo, showRepairPlan, showRepaired, showReplay } from "./previews.js";
import { count, rows } from "./words.js";

const GOES_ON = "The preview goes on. Its end is listed under Tasks.";

export function startRun(name, changed) {
  openDialog({
    title: `Start a run of ${name}`,
    says: ["The run reads what waits, and delivers it. If batches are open, it finishes them first."],
    verb: "Start the run", changed,
    request: ({ reason }) => ({ method: "POST", path: path("pipelines", name, "runs"), body: { reason } }),
    describe: (task) => describeTask(task, "The run"),
  });
}

export function stopRun(name, changed) {
  openDialog({
    title: `Stop the run of ${name}`,
    says: ["The run begins no more batches. Batches in flight finish, and the next run continues after them."],
    fields: [
      { name: "force", label: "Force: cancel the batches in flight", kind: "check", help: "The next run recovers them. No row is lost or doubled." },
      { name: "within", label: "Or force it after", help: "Such as 30s or 5m. Empty: never." },
    ],
    verb: "Stop the run", danger: true, changed,
    request: ({ reason, force, within }) => ({ method: "POST", path: path("pipelines", name, "stop"), body: { reason, force, within } }),
    describe: ({ asked }, { force }) => (asked ? `The run was asked to stop${force ? " at once" : ""}.` : "There was no run to stop."),
  });
}

export function resume(name, changed) {
  openDialog({
    title: `Resume ${name}`,
    says: ["A limit on refused rows paused this pipeline. After this, runs may begin again.", "It pauses again if the next rows are as bad. See the refused rows first."],
    verb: "Resume", changed,
    request: ({ reason }) => ({ method: "POST", path: path("pipelines", name, "resume"), body: { reason } }),
    describe: ({ resumed }) => (resumed ? "Runs may begin again. Start one, or wait for the schedule." : "It was not paused."),
  });
}

export function holdSchedule(name, held, changed) {
  openDialog({
    title: `${held ? "Hold" : "Release"} the schedule of ${name}`,
    says: [held ? "The schedule begins no run of it until a person releases it. A run that works now goes on." : "The schedule begins runs of it again when they are due."],
    verb: held ? "Hold the schedule" : "Release the schedule", changed,
    request: ({ reason }) => ({ method: "PUT", path: path("pipelines", name, "schedule"), body: { reason, held } }),
    describe: (answer) => (answer.held ? "The schedule begins no more runs of it." : "The schedule begins runs of it again."),
  });
}

export function changeLimits(name, settings, changed) {
  openDialog({
    title: `Change the DLQ limits of ${name}`,
    says: [`Now a run stops when ${count(settings.threshold)} of its last ${count(settings.window)} rows were refused.`, "The change is for the run that works now, from its next batch to its end. For good, change the definition."],
    fields: [
      { name: "threshold", label: "Refused rows that stop the run (threshold)", kind: "number", min: 0, value: settings.threshold },
      { name: "window", label: "Among the last so many rows (window)", kind: "number", min: 0, value: settings.window, help: "0 counts no window." },
      { name: "rows", label: "Limit on the share of refused rows", value: settings.limits?.rows ?? "", help: "Such as 5% pause. Empty removes it." },
    ],
    verb: "Change the limits", changed,
    request: (values) => ({ method: "PUT", path: path("pipelines", name, "dlq"), body: listChangedLimits(values, settings) }),
    describe: (answer) => `From the next batch: ${count(answer.threshold)} of ${count(answer.window)} rows.`,
  });
}

function listChangedLimits({ reason, threshold, window, rows: share }, settings) {
  const body = { reason };
  if (threshold !== "" && Number(threshold) !== settings.threshold) body.threshold = Number(threshold);
  if (window !== "" && Number(window) !== settings.window) body.window = Number(window);
  if (share !== (settings.limits?.rows ?? "")) body.rows = share;
  return body;
}

export function audit(name) {
  openDialog({
    title: `Audit ${name}`,
    says: ["Wherry reads the destinations and the DLQ, and proves that each row is where it should be. It changes nothing.", "This can take minutes for large tables."],
    verb: "Audit", asks: false,
    request: () => ({ method: "POST", path: path("pipelines", name, "audit"), body: {} }),
    describe: ({ state, result }) => (result ? showAudit(result) : describeTask({ state }, "The audit")),
  });
}

// A preview that has to be seen before the change. `body` makes the request from the values and more fields.
function seeFirst(verb, body, describe) {
  return {
    verb, first: true,
    request: (values) => body({ ...values, reason: values.reason || "preview" }, { preview: true }),
    describe: ({ result }) => (result ? describe(result) : GOES_ON),
  };
}

// `names` are the destinations, and `lanes` the lanes, of which a person may choose one.
export function backfill(name, names, lanes, changed) {
  const every = (all, some) => [["", all], ...some.map((each) => [each, each])];
  const body = ({ reason, start, end, only, lane, again }, more) => ({ method: "POST", path: path("pipelines", name, "backfill"), body: { reason, start, end, only, lane, again, ...more } });
  openDialog({
    title: `Backfill ${name}`,
    says: ["Old batches are delivered to destinations that lack them. Offsets do not move.", "A batch is named by its number in its lane, or by the moment when it was loaded. That is not a date in the rows."],
    fields: [
      { name: "start", label: "From", help: "Such as 412, or 2026-01-31T06:00 in UTC. Empty: from the first batch." },
      { name: "end", label: "To", help: "In the same form. Empty: to the last batch." },
      { name: "only", label: "Destination", kind: "select", choices: every("Every destination", names) },
      ...(lanes.length > 1 ? [{ name: "lane", label: "Lane", kind: "select", choices: every("Every lane", lanes) }] : []),
      { name: "again", label: "Deliver also what a destination has", kind: "check", help: "A destination that appends then has the rows twice." },
    ],
    verb: "Backfill", changed,
    preview: seeFirst("Preview", body, showBackfill),
    request: (values) => body(values),
    describe: (task) => describeTask(task, "The backfill"),
  });
}

export function redo(name, changed) {
  const body = ({ reason, file }, more) => ({ method: "POST", path: path("pipelines", name, "redo"), body: { reason, file, ...more } });
  openDialog({
    title: `Redo a file of ${name}`,
    says: ["Wherry reads an edited file again. In each table, one commit replaces the old rows of the file by the new ones.", "The preview counts the rows. It needs Spark, which can take half a minute."],
    fields: [{ name: "file", label: "File", wanted: true, help: "Its name, such as monday.json." }],
    verb: "Redo the file", danger: true, changed,
    preview: seeFirst("Preview", body, showRedo),
    request: (values) => body(values),
    describe: (task) => describeTask(task, "The redo"),
  });
}

export function repair(name, changed) {
  const body = ({ reason }, more) => ({ method: "POST", path: path("pipelines", name, "repair"), body: { reason, ...more } });
  openDialog({
    title: `Repair ${name}`,
    says: ["Wherry audits the pipeline, and repairs what it finds where no guess is needed. For all else it says what to do.", "See first what there is to repair. This can take minutes for large tables."],
    verb: "Repair", changed,
    preview: {
      ...seeFirst("See what there is to repair", body, showRepairPlan),
      allows: ({ result }) => Boolean(result?.damage || result?.audit.problems.length),
      fields: ({ result }) => (result?.audit?.problems || []).map((each) => ({
        name: "accept", kind: "check", item: each.id, label: `Accept: ${each.message}`,
      })),
      asks: "Tick what is right as it is. No row changes by that, and audits count it as right from then on.",
    },
    request: ({ reason, accept = [] }) => body({ reason }, { accept }),
    describe: (task) => (task.result ? showRepaired(task.result) : describeTask(task, "The repair")),
  });
}

export function moveOffsets(name, lanes, changed) {
  openDialog({
    title: `Move the offsets of ${name}`,
    says: ["The next run reads old rows again from the place that you choose. Preview it first: destinations that append get the rows twice."],
    fields: [
      { name: "way", label: "Where to", kind: "select", choices: [["back", "Back by a number of batches, in every lane"], ["to", "Back to a moment, in every lane"], ["beginning", "Back to the beginning"], ...Object.keys(lanes).map((lane) => [`lane ${lane}`, `Lane ${lane}: to an offset`])] },
      { name: "back", label: "Batches to go back", kind: "number", min: 1, value: 1, when: "back" },
      { name: "to", label: "Moment", help: "Such as 2026-01-31T06:00, in UTC.", when: "to" },
      { name: "offset", label: "Offset as JSON", help: "In the form that this view shows, such as {\"file\": \"orders-0017.json\"}.", when: "lane" },
    ],
    verb: "Move the offsets", danger: true, changed,
    preview: {
      verb: "Preview",
      request: (values) => ({ method: "POST", path: path("pipelines", name, "offsets"), body: { ...readMove(values), reason: values.reason || "preview", preview: true } }),
      describe: showMove,
    },
    request: (values) => ({ method: "POST", path: path("pipelines", name, "offsets"), body: { ...readMove(values), reason: values.reason } }),
    describe: (move) => (move.moved ? ["The offsets were moved.", showMove(move)] : "Nothing was moved: every lane is there already."),
  });
}

function readMove({ way, back, to, offset }) {
  if (way === "beginning") return { beginning: true };
  if (way === "back") return { back: Number(back) || 0 };
  if (way === "to") return { to };
  return { lane: way.slice(5), offset: readJson(offset) };
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// `choice` has the conditions on the rows: code, stage, file, contains or ids. `waiting` is how many wait now.
export function replay(name, choice, waiting, words, changed) {
  openDialog({
    title: `Replay ${rows(waiting, "refused")} of ${name}`,
    says: [`${words}.`, "Each row passes the stages of today. Rows that pass are delivered; rows that are refused again wait again.", "Mend the cause first. A preview shows what would pass."],
    verb: `Replay ${rows(waiting)}`, changed,
    preview: {
      verb: "Preview",
      request: ({ reason }) => ({ method: "POST", path: path("pipelines", name, "dlq", "replay"), body: { ...choice, reason: reason || "preview", preview: true } }),
      describe: ({ result }) => result ? showReplay(result) : GOES_ON,
    },
    request: ({ reason }) => ({ method: "POST", path: path("pipelines", name, "dlq", "replay"), body: { ...choice, reason } }),
    describe: (task) => describeTask(task, "The replay"),
  });
}

export function discard(name, choice, waiting, words, changed) {
  openDialog({
    title: `Discard ${rows(waiting, "refused")} of ${name}`,
    says: [`${words}.`, "No replay takes them any more, and no destination gets them. They stay in the DLQ to be looked at, until its time is over.", "This cannot be undone."],
    verb: `Discard ${rows(waiting)}`, danger: true, changed,
    request: ({ reason }) => ({ method: "POST", path: path("pipelines", name, "dlq", "discard"), body: { ...choice, reason, expected: waiting } }),
    describe: ({ discarded }) => `${rows(discarded)} ${discarded === 1 ? "was" : "were"} discarded.`,
  });
}

export function cancelTask(task, changed) {
  openDialog({
    title: `Cancel ${task.operation.replaceAll("_", " ")} of ${task.pipeline}`,
    says: ["A task that waits does not begin. A run finishes its batches in flight, and then stops."],
    verb: "Cancel the task", danger: true, changed,
    request: ({ reason }) => ({ method: "POST", path: path("tasks", task.task, "cancel"), body: { reason } }),
    describe: () => "The task was cancelled. A run ends after its batches in flight.",
  });
}
