// What the server does now, and what it did since it began.

import { ask, path } from "./api.js";
import { cancelTask } from "./changes.js";
import { describeWork, showProblem } from "./dialogs.js";
import { link, make, section, table } from "./dom.js";
import { place } from "./overview.js";
import { showResult } from "./previews.js";
import { offer } from "./rights.js";
import { duration, shorten, showState, showTime } from "./words.js";

export const tasks = {
  title: "Tasks",
  every: 2,
  live: ({ tasks: list }, pipeline) => list.some((each) => !each.ended_at && each.pipeline === pipeline),
  fetch: () => ask(path("tasks")),
  draw({ tasks: list }, page) {
    return [
      make("h1", {}, "Tasks"),
      make("p", { class: "dim" }, "What people asked this server to do since it began. The schedule's own runs are in the history of each pipeline."),
      list.length ? table("Tasks", ["State", "What", "Pipeline", "By", "Reason", "Began", { name: "Took", number: true }, "Now or why", ""], list.map((each) => showTask(each, page)), { kind: "cards" }) : make("p", {}, "Nobody asked for anything yet."),
    ];
  },
};

// One task: how far it is, and what it found or did.
export const taskOf = {
  title: "Task",
  every: 2,
  live: (task, pipeline) => !task.ended_at && task.pipeline === pipeline,
  fetch: (task) => ask(path("tasks", task)),
  draw(task, page) {
    const facts = [
      ["Pipeline", link(place(task.pipeline), task.pipeline)], ["By", task.by], ["Reason", task.reason || "–"], ["Began", showTime(task.began_at, { relative: true })], ["Took", duration(measure(task))],
      ["Run", task.run ? link(place(task.pipeline, "runs", task.run), task.run.slice(0, 8)) : "–"],
    ];
    return [
      make("nav", { class: "crumbs", "aria-label": "Where you are" }, link("tasks", "Tasks"), make("span", { "aria-hidden": "true" }, " / "), make("span", {}, name(task))),
      make("div", { class: "title" }, make("h1", {}, name(task)), showState(task.state)),
      make("dl", { class: "facts" }, facts.map(([what, value]) => make("div", {}, make("dt", {}, what), make("dd", {}, value)))),
      task.ended_at ? null : make("p", { class: "working", role: "status" }, make("span", { class: "spin", "aria-hidden": "true" }), describeWork(task)),
      task.ended_at ? null : make("div", { class: "acts" }, offer("cancel_task", "Cancel", () => cancelTask(task, page.refresh))),
      task.problem ? section("Why", showProblem({ ...task.problem, message: task.problem.detail })) : null,
      task.result === null ? null : section("What it found or did", make("div", {}, showResult(task.operation, task.result))),
    ];
  },
};

function name({ operation }) {
  return operation.replaceAll("_", " ");
}

function measure({ began_at: began, ended_at: ended }) {
  return ended ? (new Date(ended) - new Date(began)) / 1000 : null;
}

function showWork(task) {
  const said = task.ended_at ? task.doing : describeWork(task);
  const run = task.run ? link(place(task.pipeline, "runs", task.run), `run ${task.run.slice(0, 8)}`) : null;
  return run || said ? [run, run && said ? ", " : "", said] : "–";
}

function showTask(each, page) {
  return [
    showState(each.state), link(`tasks/${each.task}`, name(each)), link(place(each.pipeline), each.pipeline), each.by, shorten(each.reason, 80) || "–", showTime(each.began_at, { relative: true }), duration(measure(each)),
    each.problem ? make("span", { class: "bad" }, shorten(each.problem.detail, 160)) : showWork(each),
    each.ended_at ? "" : offer("cancel_task", "Cancel", () => cancelTask(each, page.refresh), { kind: "small", label: `Cancel ${name(each)} of ${each.pipeline}` }),
  ];
}
