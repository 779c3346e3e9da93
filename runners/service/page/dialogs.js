// One dialog for every change: it says what will happen, asks for the reason, and says what was done.

import { Problem, change, followTask, makeKey } from "./api.js";
import { button, findKey, focusOn, make, swap } from "./dom.js";
import { count } from "./words.js";

let number = 0;

// `says` are sentences. `fields` are {name, label, kind, value, help, choices, wanted, when}. `request(values)` returns
// {method, path, body}. `preview` is the same for a try, with `describe(answer)`. `describe(answer)` returns what was done.
export function openDialog(plan) {
  number += 1;
  const state = { plan, id: `dialog-${number}`, key: null, sent: "", open: true };
  const dialog = make("dialog", { "aria-labelledby": `${state.id}-title`, "aria-describedby": `${state.id}-says` });
  state.place = make("div", { class: "outcome" });
  const form = makeForm(state, dialog);
  dialog.append(form);
  dialog.addEventListener("close", () => {
    state.open = false;
    dialog.remove();
    plan.closed?.();
    if (state.opener.isConnected) state.opener.focus();
    else focusOn(state.openerKey);
  });
  state.opener = document.activeElement;
  state.openerKey = findKey(state.opener);
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector("input, textarea, select") || form.querySelector("button")).focus();
}

function makeForm(state, dialog) {
  const { plan } = state;
  const form = make("form", { novalidate: true, on: { submit: (event) => event.preventDefault() } },
    make("h2", { id: `${state.id}-title` }, plan.title),
    make("div", { id: `${state.id}-says`, class: "says" }, plan.says.filter(Boolean).map((each) => make("p", {}, each))),
    (plan.fields || []).map((field) => makeField(state, field)),
    plan.asks === false ? null : makeField(state, {
      name: "reason", label: "Reason", kind: "textarea", wanted: true,
      help: "The log of the server keeps it with your name and the time.",
    }),
    state.place);
  const buttons = make("div", { class: "buttons" });
  const cancel = button("Cancel", () => dialog.close(), { kind: "plain" });
  state.cancel = cancel;
  const go = make("button", { type: "submit", class: plan.danger ? "danger" : "primary" }, plan.verb);
  const first = plan.preview ? button(plan.preview.verb, () => tryFirst(state, form, go), { kind: "second" }) : null;
  form.addEventListener("submit", () => act(state, form, buttons, dialog));
  buttons.append(...[go, first, cancel].filter(Boolean));
  form.append(buttons);
  form.addEventListener("change", () => showWanted(form));
  showWanted(form);
  return form;
}

function makeField(state, field) {
  const id = `${state.id}-${field.name}`;
  const given = { id, name: field.name, "aria-describedby": field.help ? `${id}-help` : null, required: field.wanted };
  const only = field.when ? { "data-when": field.when } : {};
  const help = field.help ? make("span", { class: "help", id: `${id}-help` }, field.help) : null;
  if (field.kind === "check") {
    const box = make("input", { ...given, type: "checkbox", checked: field.value });
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
  for (const each of form.elements) if (each.name) values[each.name] = each.type === "checkbox" ? each.checked : each.value.trim();
  return values;
}

async function act(state, form, buttons, dialog) {
  if (state.busy) return;
  const values = readValues(form);
  const missing = [...form.elements].find((each) => each.required && !each.value.trim());
  if (missing) {
    tell(state, make("p", { class: "problem", role: "alert" }, missing.name === "reason" ? "Give a reason. One sentence is enough." : `Give a value: ${missing.labels[0].textContent}.`));
    missing.focus();
    return;
  }
  await work(state, form, async () => {
    const answer = await carryOut(state, state.plan.request(values), state.plan.verb);
    if (!state.open) return;
    refuseFailure(answer);
    tell(state, make("div", { class: "done", role: "status" }, make("p", {}, state.plan.describe(answer, values))));
    for (const each of form.querySelectorAll(".field, .says")) each.remove();
    swap(buttons, button("Close", () => dialog.close(), { kind: "primary" }));
    buttons.firstChild.focus();
    state.plan.changed?.();
  });
}

async function tryFirst(state, form, go) {
  if (state.busy) return;
  const { preview } = state.plan;
  await work(state, form, async () => {
    const answer = await carryOut(state, preview.request(readValues(form)), preview.verb, makeKey());
    if (!state.open) return;
    refuseFailure(answer);
    tell(state, make("div", { class: "preview", role: "status" }, make("h3", {}, "Preview. Nothing was changed."), preview.describe(answer)));
    go.focus();
  });
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
    state.cancel.textContent = "Cancel";
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
    tell(state, showWork(`${task.doing || task.state}, for ${count(seconds)} s. You may close this; the work goes on and is listed under Tasks.`));
  }, () => state.open);
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
