// Who asks, and buttons that say which right they need.

import { Problem, ask, path } from "./api.js";
import { openNote } from "./dialogs.js";
import { button, make } from "./dom.js";

const RIGHTS = ["read", "operate", "admin"];
let known = null;

// Asks the server who the owner of the token is. What was known stays if the server does not answer.
export async function learnCaller() {
  try {
    known = await ask(path("caller"));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
}

export function getName() {
  return known?.caller ?? "";
}

function findNeeded(operation) {
  return known?.needs[operation] ?? "read";
}

export function mayDo(operation, right = findNeeded(operation)) {
  return known === null || RIGHTS.indexOf(known.right) >= RIGHTS.indexOf(right);
}

// A button for an operation. Without the right to it, it is dimmed, stays in reach of the keyboard, and says why.
export function offer(operation, text, act, { right = findNeeded(operation), ...given } = {}) {
  if (mayDo(operation, right)) return button(text, act, given);
  const why = `This needs the right to ${right}, and ${known.caller} has the right to ${known.right}.`;
  const dimmed = button(text, () => openNote(`${text}: not with this token`, why,
    "Ask the owner of the server for a token with that right:", make("pre", {}, `wherry serve DIR --new-token NAME --right ${right}`)), given);
  dimmed.setAttribute("aria-disabled", "true");
  dimmed.title = why;
  return dimmed;
}

export function showLack() {
  return make("p", { class: "lack" }, make("strong", {}, known.caller), ` has the right to ${known.right}. A dimmed button needs more. Press it to see what.`);
}
