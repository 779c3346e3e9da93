// Numbers, times and states in words.

import { make } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const DAY_AND_TIME = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const WITH_YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const ONLY_TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

const STATES = {
  failed: ["✕", "failed", "bad"],
  killed: ["✕", "killed", "bad"],
  paused: ["‖", "paused", "warn"],
  broken: ["✕", "cannot be used", "bad"],
  running: ["▶", "running", "live"],
  working: ["▶", "working", "live"],
  waiting: ["…", "waiting", "quiet"],
  idle: ["✓", "idle", "good"],
  succeeded: ["✓", "succeeded", "good"],
  stopped: ["■", "stopped", "quiet"],
  never_run: ["○", "never ran", "quiet"],
  held: ["⊘", "schedule held", "warn"],
  planned: ["?", "waits for approval", "warn"],
  approved: ["✓", "approved", "live"],
  carried_out: ["✓", "carried out", "good"],
  refused: ["!", "refused rows", "warn"],
};

export function getState(name) {
  const [mark, text, kind] = STATES[name] || ["?", name || "not known", "quiet"];
  return { mark, text, kind };
}

export function showState(name) {
  const { mark, text, kind } = getState(name);
  return make("span", { class: `state ${kind}` }, make("span", { "aria-hidden": "true", class: "mark" }, mark), text);
}

export function count(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

export function rows(value, words = "") {
  return `${count(value)} ${words}${words ? " " : ""}${value === 1 ? "row" : "rows"}`;
}

export function plural(value, one, several = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : several}`;
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const whole = share * 100;
  if (share < 1 && whole > 99.9) return "99.9%";
  return `${whole.toFixed(whole === 100 || whole === 0 ? 0 : 1)}%`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatMoment(moment, now = new Date()) {
  if (moment.toDateString() === now.toDateString()) return ONLY_TIME.format(moment);
  return (moment.getFullYear() === now.getFullYear() ? DAY_AND_TIME : WITH_YEAR).format(moment);
}

export function formatUtc(moment) {
  return `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export function ago(moment, now = new Date()) {
  const seconds = (now - moment) / 1000;
  const size = Math.abs(seconds);
  const text = size < 60 ? `${Math.round(size)} s` : size < 5400 ? `${Math.round(size / 60)} min` : size < 129600 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} days`;
  if (size < 5) return "now";
  return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

// A moment in the reader's zone, with UTC on hover. With `relative` it also says how long ago that is.
export function showTime(text, { relative = false } = {}) {
  const moment = new Date(text);
  if (!text || Number.isNaN(moment.getTime())) return make("span", { class: "dim" }, "–");
  const shown = make("time", { datetime: moment.toISOString(), title: formatUtc(moment) }, formatMoment(moment));
  if (!relative) return shown;
  return make("span", { class: "when" }, shown, " ", make("span", { class: "dim", "data-ago": moment.toISOString() }, ago(moment)));
}

export function renewTimes(place) {
  for (const each of place.querySelectorAll("[data-ago]")) each.textContent = ago(new Date(each.dataset.ago));
}

export function describeWaiting(waiting) {
  if (waiting === null || waiting === undefined) return "";
  const words = { files: "file", versions: "version", rows: "row" };
  return Object.entries(waiting).filter(([, number]) => number).map(([name, number]) => plural(number, words[name] || name)).join(", ");
}

export function show(value) {
  if (value === null || value === undefined) return make("span", { class: "null" }, "null");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function shorten(text, most) {
  const plain = String(text ?? "").replace(/\s+/g, " ").trim();
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}

const ruler = document.createElement("canvas").getContext("2d");

// Returns as much of the text as is at most so many pixels wide.
export function fitText(text, wide, { size = 12, weight = 400 } = {}) {
  ruler.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  const plain = shorten(text, 200);
  if (ruler.measureText(plain).width <= wide) return plain;
  let most = plain.length;
  while (most > 1 && ruler.measureText(`${plain.slice(0, most)}…`).width > wide) most -= 1;
  return `${plain.slice(0, most)}…`;
}

export function getError(error) {
  if (!error) return null;
  return typeof error === "string" ? { message: error, hint: "", code: "" } : error;
}

export function describeReport(report) {
  if (!report || report.read === undefined) return "";
  const delivered = Object.values(report.destinations || {}).map((each) => each.delivered);
  const parts = [`${count(report.read)} read`];
  if (delivered.length === 1) parts.push(`${count(delivered[0])} delivered`);
  parts.push(`${count(report.filtered)} filtered`, `${count(report.nacked)} refused`);
  return parts.join(", ");
}
