// One dialog for every change: it says what will happen, asks for the reason, and says what was done.

import { Problem, change, followTask, makeKey } from "./api.js";
import { button, findKey, focusOn, make, swap } from "./dom.js";
import { findLive } from "./live.js";
import { count, plural, rows } from "./words.js";

let number = 0;

// `says` are sentences. `fields` are {name, label, kind, value, help, choices, wanted, when}. `request(values)` returns
// {method, path, body}. `preview` is the same for a try, with `describe(answer)`. `describe(answer)` returns what was done.
// A preview that comes `first` has to be seen before the change, if it `allows(answer)` it; its `fields(answer)` are asked then,
// below the sentence `asks`.
// `body` are nodes below the sentences, and `leave` is the text of the button that changes nothing.
export function openDialog(plan) {
  number += 1;
  const state = { plan, id: `dialog-${number}`, key: null, sent: "", seen: null, open: true };
  const dialog = make("dialog", { "aria-labelledby": `${state.id}-title`, "aria-describedby": `${state.id}-says` });
  state.place = make("div", { class: "outcome" });
  state.more = make("div", {});
  const form = makeForm(state, dialog);
  dialog.append(form);
  showDialog(dialog, () => {
    state.open = false;
    plan.closed?.();
  });
  (form.querySelector("input, textarea, select") || form.querySelector(plan.body ? "h2" : "button")).focus();
}

// Says something, and asks nothing.
export function openNote(title, ...says) {
  number += 1;
  const dialog = make("dialog", { "aria-labelledby": `note-${number}`, "aria-describedby": `note-${number}-says` },
    make("h2", { id: `note-${number}` }, title), make("div", { id: `note-${number}-says` }, says.map((each) => (each instanceof Node ? each : make("p", {}, each)))));
  dialog.append(make("div", { class: "buttons" }, button("Close", () => dialog.close(), { kind: "primary" })));
  showDialog(dialog, () => {});
  dialog.querySelector("button").focus();
}

// The focus goes back to where it was when the dialog closes.
function showDialog(dialog, closed) {
  const opener = document.activeElement;
  const key = findKey(opener);
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
    if (opener.isConnected) opener.focus();
    else focusOn(key);
  });
  document.body.append(dialog);
  dialog.showModal();
}

function makeForm(state, dialog) {
  const { plan } = state;
  const form = make("form", { novalidate: true, on: { submit: (event) => event.preventDefault() } },
    make("h2", { id: `${state.id}-title`, tabindex: -1 }, plan.title),
    make("div", { id: `${state.id}-says`, class: "says" }, plan.says.filter(Boolean).map((each) => make("p", {}, each))),
    plan.body || null,
    (plan.fields || []).map((field) => makeField(state, field)),
    plan.asks === false ? null : makeField(state, {
      name: "reason", label: "Reason", kind: "textarea", wanted: true,
      help: "The log of the server keeps it with your name and the time.",
    }),
    state.place, state.more);
  const buttons = make("div", { class: "buttons" });
  const cancel = button(plan.leave || "Cancel", () => dialog.close(), { kind: "plain" });
  state.cancel = cancel;
  const go = make("button", { type: "submit", class: plan.danger ? "danger" : "primary" }, plan.verb);
  const first = plan.preview ? button(plan.preview.verb, () => tryFirst(state, form, go), { kind: "second" }) : null;
  state.first = first;
  form.addEventListener("submit", () => (isUnseen(state, form) ? tryFirst(state, form, go) : act(state, form, buttons, dialog)));
  buttons.append(...[go, first, cancel].filter(Boolean));
  form.append(buttons);
  const renew = () => {
    showWanted(form);
    showGo(state, form, go);
  };
  form.addEventListener("change", renew);
  form.addEventListener("input", renew);
  renew();
  return form;
}

function makeField(state, field) {
  const id = `${state.id}-${field.name}${field.item === undefined ? "" : `-${field.item}`}`;
  const given = { id, name: field.name, "aria-describedby": field.help ? `${id}-help` : null, required: field.wanted };
  const only = field.when ? { "data-when": field.when } : {};
  const help = field.help ? make("span", { class: "help", id: `${id}-help` }, field.help) : null;
  if (field.kind === "check") {
    const box = make("input", { ...given, type: "checkbox", checked: field.value, value: field.item, "data-item": field.item });
    return make("p", { class: "field check", ...only }, box, make("label", { for: id }, field.label), help);
  }
  const input = field.kind === "textarea" ? make("textarea", { ...given, rows: 2, maxlength: 1000 })
    : field.kind === "select" ? make("select", given, field.choices.map(([value, text]) => make("option", { value }, text)))
      : make("input", { ...given, type: field.kind || "text", value: field.value ?? "", min: field.min, autocomplete: "off" });
  return make("p", { class: "field", ...only }, make("label", { for: id }, field.label), input, help);
}

// Shows the fields of the choice that was made, and hides those of the others.
function showWanted(form) {
  const chosen = [...form.querySelectorAll("select")].map((each) => each.value.split(" ")[0]);
  for (const each of form.querySelectorAll("[data-when]")) each.hidden = !chosen.includes(each.dataset.when);
}

function readValues(form) {
  const values = {};
  for (const each of form.elements) {
    if (each.dataset.item !== undefined) (values[each.name] ||= []).push(...(each.checked ? [each.value] : []));
    else if (each.name) values[each.name] = each.type === "checkbox" ? each.checked : each.value.trim();
  }
  return values;
}

// What a preview is about, whatever the reason.
function nameSight({ plan }, values) {
  return JSON.stringify(plan.preview.request({ ...values, reason: "-" }));
}

function isUnseen(state, form) {
  return Boolean(state.plan.preview?.first) && state.seen !== nameSight(state, readValues(form));
}

// Whether nothing is missing. If something is, the dialog says what.
function isWhole(state, form, but = "") {
  const missing = [...form.elements].find((each) => each.required && each.name !== but && !each.value.trim());
  if (!missing) return true;
  tell(state, make("p", { class: "problem", role: "alert" }, missing.name === "reason" ? "Give a reason. One sentence is enough." : `Give a value: ${missing.labels[0].textContent}.`));
  missing.focus();
  return false;
}

async function act(state, form, buttons, dialog) {
  if (state.busy || !isWhole(state, form)) return;
  const values = readValues(form);
  await work(state, form, async () => {
    const answer = await carryOut(state, state.plan.request(values), state.plan.verb);
    if (!state.open) return;
    refuseFailure(answer);
    tell(state, make("div", { class: "done", role: "status" }, make("div", {}, state.plan.describe(answer, values))));
    for (const each of form.querySelectorAll(".field, .says, .asked")) each.remove();
    swap(buttons, button("Close", () => dialog.close(), { kind: "primary" }));
    buttons.firstChild.focus();
    state.plan.changed?.();
  });
}

async function tryFirst(state, form, go) {
  if (state.busy || !isWhole(state, form, "reason")) return;
  const { preview } = state.plan;
  const values = readValues(form);
  Object.assign(state, { seen: null });
  swap(state.more);
  await work(state, form, async () => {
    const answer = await carryOut(state, preview.request(values), preview.verb, makeKey());
    if (!state.open) return;
    refuseFailure(answer);
    const given = make("div", { class: "preview", role: "status", tabindex: -1 }, make("h3", {}, "Preview. Nothing was changed."), preview.describe(answer));
    tell(state, given);
    if (preview.allows?.(answer) ?? true) state.seen = nameSight(state, values);
    const fields = state.seen && preview.fields ? preview.fields(answer) : [];
    if (fields.length) swap(state.more, make("p", { class: "asks" }, preview.asks), fields.map((field) => makeField(state, field)));
    given.focus();
  });
  showGo(state, form, go);
}

// The change itself is offered once its preview was seen. Then the preview is the second choice.
function showGo(state, form, go) {
  go.hidden = isUnseen(state, form);
  if (state.first) state.first.className = go.hidden ? "primary" : "second";
}

// A task that failed is a problem. One that a person stopped is not.
function refuseFailure({ problem, state }) {
  if (problem && state !== "stopped") throw new Problem(problem.status, problem);
}

async function work(state, form, act) {
  state.busy = true;
  form.setAttribute("aria-busy", "true");
  state.cancel.textContent = "Close";
  try {
    await act();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    tell(state, showProblem(error, "Nothing more was done."));
    form.querySelector("textarea, input")?.focus();
  } finally {
    state.busy = false;
    form.removeAttribute("aria-busy");
    state.cancel.textContent = state.plan.leave || "Cancel";
  }
}

async function carryOut(state, { method, path, body }, verb, own = null) {
  const sent = JSON.stringify([method, path, body]);
  if (!own && (state.sent !== sent || !state.key)) Object.assign(state, { key: makeKey(), sent });
  tell(state, showWork(`${verb}…`));
  let answer;
  try {
    answer = await change(method, path, body, own || state.key);
  } catch (error) {
    if (error.status) state.key = null; // the server answered: another try is another change
    throw error;
  }
  if (!own) state.key = null;
  if (!answer.task) return answer;
  state.plan.changed?.();
  const began = Date.now();
  return followTask(answer, (task) => {
    const seconds = Math.round((Date.now() - began) / 1000);
    tell(state, showWork(`${describeWork(task)}, for ${count(seconds)} s. You may close this; the work goes on and is listed under Tasks.`));
  }, () => state.open);
}

// What a task does now. If it is a run of this server, its batches are counted.
export function describeWork(task) {
  const live = findLive(task.pipeline);
  const done = live && task.run && live.run === task.run ? `${plural(live.batches, "batch", "batches")}, ${rows(live.read)} read` : "";
  return [task.doing || task.state, done].filter(Boolean).join(": ");
}

function showWork(text) {
  return make("p", { class: "working", role: "status" }, make("span", { class: "spin", "aria-hidden": "true" }), text);
}

function tell(state, node) {
  swap(state.place, node);
}

export function showProblem(problem, more = "") {
  return make("div", { class: "problem", role: "alert" },
    make("p", {}, make("strong", {}, problem.message)),
    problem.hint ? make("p", { class: "hint" }, problem.hint) : null,
    make("p", { class: "dim" }, [problem.code, more].filter(Boolean).join(". ")));
}
