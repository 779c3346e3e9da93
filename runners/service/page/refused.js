// Refused rows: their causes with the forms of their values, and the rows of one cause.

import { ask, path } from "./api.js";
import { discard, replay } from "./changes.js";
import { link, make, section, table } from "./dom.js";
import { place } from "./overview.js";
import { offer } from "./rights.js";
import { count, rows, shorten, show, showTime } from "./words.js";

const MOST = 50;

export function fetchCauses(name) {
  return ask(path("pipelines", name, "dlq", "causes"));
}

export function showCauses({ causes }, name, page) {
  if (!causes.length) return section("Refused rows", make("p", { class: "calm" }, make("span", { "aria-hidden": "true", class: "mark" }, "✓"), "No row was refused."));
  const waiting = causes.reduce((sum, each) => sum + each.waiting, 0);
  return section(`Refused rows by cause: ${rows(waiting)} wait`, causes.map((each) => showOneCause(each, name, page)));
}

function getBy(cause) {
  return cause.stage || cause.destination || "";
}

function showOneCause(cause, name, page) {
  const by = getBy(cause);
  return make("article", { class: `cause${cause.waiting ? "" : " over"}`, "aria-label": `${cause.code} by ${by}` },
    make("div", { class: "head" },
      make("h3", {}, link(place(name, "refused", cause.code, by), `${cause.code} by ${by}`)),
      make("span", { class: cause.waiting ? "warned" : "dim" }, cause.waiting ? `${rows(cause.waiting)} wait` : "none waits"),
      make("span", { class: "dim" }, `${count(cause.rows)} in all, the last `, showTime(cause.last, { relative: true }))),
    make("p", { class: "what" }, cause.example?.message || ""),
    showForms(cause.forms || []),
    showActs(cause, name, page, by));
}

function showForms(forms) {
  const some = forms.filter((each) => each.column || each.form);
  if (!some.length) return null;
  return table("Forms of the values", ["Column", "Form", "Such as", { name: "Rows", number: true }, { name: "Wait", number: true }, "First in"], some.slice(0, 12).map((each) => [
    each.column, make("code", {}, each.form || "–"), make("code", {}, shorten(each.example, 60)), count(each.rows), count(each.waiting ?? 0),
    each.files ? `${shorten(each.first_files?.[0] || "", 40)}${each.files > 1 ? ` and ${count(each.files - 1)} more` : ""}` : "–",
  ]), { kind: "cards tight" });
}

function showActs(cause, name, page, by) {
  const see = link(place(name, "refused", cause.code, by), "See the rows", "do");
  return make("div", { class: "acts" }, see, ...makeActs({ code: cause.code, stage: by }, cause.waiting, name, `All waiting rows with ${cause.code} by ${by}`, page));
}

export function makeActs(choice, waiting, name, words, page) {
  if (!waiting) return [];
  return [
    offer("replay_rows", "Replay", () => replay(name, choice, waiting, words, page.refresh), { label: `Replay. ${words}` }),
    offer("discard_rows", "Discard", () => discard(name, choice, waiting, words, page.refresh), { label: `Discard. ${words}`, kind: "danger quiet" }),
  ];
}

const chosen = { of: "", contains: "" };

export async function fetchCause(name, code, by) {
  const of = `${name} ${code} ${by}`;
  if (chosen.of !== of) Object.assign(chosen, { of, contains: "" });
  const wanted = { code, stage: by, contains: chosen.contains };
  const [list, causes] = await Promise.all([
    ask(path("pipelines", name, "dlq", "rows"), { ...wanted, limit: MOST }), ask(path("pipelines", name, "dlq", "causes"), wanted)]);
  return { rows: list.rows.toReversed(), cause: causes.causes[0] || null };
}

export function showCause({ rows: list, cause }, name, [code, by], page) {
  const waiting = cause?.waiting || 0;
  const { contains } = chosen;
  const words = `All waiting rows with ${code} by ${by}${contains ? ` that contain “${contains}”` : ""}`;
  const choice = { code, stage: by, ...(contains ? { contains } : {}) };
  return section(`${code} by ${by}: ${rows(waiting)} wait`,
    make("p", {}, link(place(name, "refused"), "All causes")),
    cause ? make("p", { class: "what" }, cause.example?.message || "") : null,
    cause ? showForms(cause.forms || []) : null,
    makeFilter(page),
    make("div", { class: "acts" }, ...makeActs(choice, waiting, name, words, page)),
    list.length ? listRows(list, name) : make("p", { class: "dim" }, "There is no such row."),
    cause && cause.rows > list.length ? make("p", { class: "dim" }, `These are the newest ${count(list.length)} of ${count(cause.rows)} rows.`) : null);
}

function makeFilter(page) {
  const text = make("input", { type: "search", id: "contains", value: chosen.contains, autocomplete: "off", placeholder: "In the message or the values" });
  const filter = (event) => {
    event.preventDefault();
    chosen.contains = text.value.trim();
    page.renew();
  };
  return make("form", { class: "filters", on: { submit: filter } }, make("label", { for: "contains" }, "Only rows with"), text, make("button", { type: "submit" }, "Filter"));
}

function listRows(list, name) {
  return table("Rows", ["Row", "Why", "Values", "From", "Refused", "Now"], list.map((each) => [
    link(place(name, "row", each.id), `row ${each.id.split("/").pop()}`, "id"), shorten(each.message, 120), make("code", { class: "values" }, shorten(show(each.row), 160)),
    shorten(each.part || `lane ${each.lane}`, 40), showTime(each.nacked_at, { relative: true }), describeFate(each),
  ]), { kind: "cards" });
}

export function describeFate(row) {
  return row.replayed ? "replayed" : row.discarded ? "discarded" : "waits";
}
