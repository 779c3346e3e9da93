// What a change would do, and what it did, in words and tables.

import { link, make, table } from "./dom.js";
import { count, describeReport, plural, rows, show } from "./words.js";

const N = (name) => ({ name, number: true });

function para(...children) {
  return make("p", {}, children);
}

export function showMove(move, called = "What moves", nothing = "No lane would move.") {
  const lanes = Object.entries(move.lanes).map(([lane, each]) => [lane, show(each.from), show(each.to), count(each.batches), count(each.rows)]);
  if (!lanes.length) return para(nothing);
  return [
    table(called, ["Lane", "From", "To", N("Batches again"), N("Rows again")], lanes, { kind: "cards" }),
    Object.entries(move.destinations).map(([to, what]) => para(make("strong", {}, to), ` ${what}.`)),
  ];
}

export function showBackfill(move) {
  return [showMove(move, "What is delivered again", "No batch would be delivered."), para("Offsets do not move.")];
}

export function showReplay(found) {
  const left = Object.entries(found.left || {});
  return [
    para(`Of ${rows(found.read)}, ${count(found.passing)} would be delivered, ${count(found.refused)} refused again and ${count(found.filtered)} filtered.`),
    found.passing === 0 && found.refused ? make("p", { class: "warning" }, "Nothing would pass. Mend the cause first.") : null,
    found.causes.slice(0, 5).map((each) => make("p", { class: "small" }, `${rows(each.rows)}: ${each.stage || each.destination}: ${each.problem} ${each.example ? `(such as ${each.example})` : ""}`)),
    left.map(([why, number]) => make("p", { class: "small" }, `${rows(number)} cannot be replayed: ${why}`)),
  ];
}

export function showDiscard({ found }) {
  return para(`${rows(found)} would be discarded. If other rows wait when it is carried out, it is refused.`);
}

export function showRedo(found) {
  const to = Object.entries(found.destinations).map(([name, { leaving, condition }]) => [
    name, leaving === null ? "–" : count(leaving),
    leaving === null ? "merges the new rows; an old row whose keys are not in the file any more stays" : ["replaces the rows where ", make("code", {}, condition)],
  ]);
  return [
    found.read === null ? para(`${found.file} has not changed since it was read: there is nothing to redo.`) : para(`${found.file} has ${rows(found.read)} now.`),
    to.length ? table("What is replaced", ["Destination", N("Old rows"), "How"], to, { kind: "cards" }) : found.read === null ? null : para("No destination has rows of it."),
    found.letters ? para(`${rows(found.letters, "refused")} of the old file ${found.letters === 1 ? "waits" : "wait"} in the DLQ. The redo discards ${found.letters === 1 ? "it" : "them"}.`) : null,
    found.unsure?.length ? para(`${rows(found.unsure.length, "refused")} may be from the old file. ${found.unsure.length === 1 ? "It stays" : "They stay"}; see the refused rows.`) : null,
  ];
}

// A finding is safe if Wherry can repair it without a guess.
export function showRepairPlan({ damage, audit }) {
  if (damage) return [para(make("strong", {}, "The ledger is damaged. ")), make("p", { class: "pre" }, damage)];
  if (audit.balanced) return para("Nothing is wrong, so there is nothing to repair.");
  const safe = audit.problems.filter((each) => each.safe).length;
  return [
    para(safe ? `Wherry repairs ${safe} of ${plural(audit.problems.length, "finding")}.` : "Wherry can repair nothing by itself. Each finding says what to do."),
    listFindings(audit.problems, (each) => (each.safe ? "Wherry repairs it." : "A person decides: ")),
  ];
}

export function showAudit(found) {
  if (found.balanced) return `Every row is where it should be: ${rows(found.read)} read, ${count(found.nacked)} refused, ${count(found.filtered)} filtered.`;
  return [make("strong", {}, `${plural(found.problems.length, "problem")} found.`), listFindings(found.problems)];
}

function listFindings(problems, describe = () => "") {
  return problems.map((each) => make("div", { class: "finding" },
    para(make("code", {}, each.code), ` ${each.message}`), describe(each) ? make("p", { class: "small" }, describe(each), each.safe ? null : each.repair) : make("pre", {}, each.repair)));
}

export function showRepaired({ done, failed, accepted, audit }) {
  return [
    done.length || accepted?.length ? null : para("There was nothing to do."),
    done.map((each) => para(`Done: ${each}.`)),
    (accepted || []).map((each) => para("Accepted: ", make("code", {}, each))),
    (failed || []).map((each) => make("p", { class: "bad" }, `Not done: ${each}`)),
    make("div", {}, showAudit(audit)),
  ];
}

const SHOWN = {
  move_offsets: (each) => (each.lanes ? showMove(each) : null),
  run_backfill: (each) => (each.lanes ? showBackfill(each) : null),
  run_redo: (each) => (each.destinations ? showRedo(each) : null),
  run_repair: (each) => (each.done ? showRepaired(each) : "damage" in each || each.audit ? showRepairPlan(each) : null),
  run_audit: (each) => (each.problems ? showAudit(each) : null),
  replay_rows: (each) => (each.causes ? showReplay(each) : null),
  discard_rows: (each) => (each.found === undefined ? null : showDiscard(each)),
};

// What an operation found or did. A result of another form is shown as JSON.
export function showResult(operation, result) {
  if (result === null || result === undefined) return null;
  if (result.status !== undefined && result.read !== undefined) return para(describeReport(result));
  return SHOWN[operation]?.(result) ?? make("pre", {}, JSON.stringify(result, null, 2));
}

export function describeTask({ state, run, result, pipeline }, what) {
  const words = { succeeded: "succeeded", stopped: "was stopped", failed: "failed" };
  if (!words[state]) return `${what} goes on.`;
  const counts = describeReport(result);
  return [`${what} ${words[state]}${counts ? `: ${counts}` : ""}. `, run && pipeline ? link(`p/${encodeURIComponent(pipeline)}/runs/${run}`, "See it") : null];
}
