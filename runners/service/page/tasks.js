// What the server does now, and what it did since it began.

import { ask, path } from "./api.js";
import { cancelTask } from "./changes.js";
import { button, link, make, table } from "./dom.js";
import { place } from "./overview.js";
import { duration, shorten, showState, showTime } from "./words.js";

export const tasks = {
  title: "Tasks",
  every: 2,
  fetch: () => ask(path("tasks")),
  draw({ tasks: list }, page) {
    return [
      make("h1", {}, "Tasks"),
      make("p", { class: "dim" }, "What people asked this server to do since it began. The schedule's own runs are in the history of each pipeline."),
      list.length ? table("Tasks", ["State", "What", "Pipeline", "By", "Reason", "Began", { name: "Took", number: true }, "Now or why", ""], list.map((each) => showTask(each, page)), { kind: "cards" }) : make("p", {}, "Nobody asked for anything yet."),
    ];
  },
};

function showTask(each, page) {
  const took = each.ended_at ? (new Date(each.ended_at) - new Date(each.began_at)) / 1000 : null;
  return [
    showState(each.state), each.operation.replaceAll("_", " "), link(place(each.pipeline), each.pipeline), each.by, shorten(each.reason, 80) || "–", showTime(each.began_at, { relative: true }), duration(took),
    each.problem ? make("span", { class: "bad" }, shorten(each.problem.detail, 160)) : each.run ? link(place(each.pipeline, "runs", each.run), `run ${each.run.slice(0, 8)}`) : each.doing || "–",
    each.ended_at ? "" : button("Cancel", () => cancelTask(each, page.refresh), { kind: "small", label: `Cancel ${each.operation.replaceAll("_", " ")} of ${each.pipeline}` }),
  ];
}
