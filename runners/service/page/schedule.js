// The schedule of the next days as a calendar, in the reader's zone, with the days on which clocks change.

import { ask, path } from "./api.js";
import { holdSchedule } from "./changes.js";
import { link, make, section, table } from "./dom.js";
import { place } from "./overview.js";
import { offer } from "./rights.js";
import { count, formatUtc } from "./words.js";

const MOST = 6;
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export const schedule = {
  title: "Schedule",
  every: 30,
  fetch: () => ask(path("schedule"), { days: 7 }),
  draw(found, page) {
    const days = listDays(new Date(found.now));
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    return [
      make("h1", {}, "Schedule"),
      make("p", { class: "dim" }, `The next seven days, in your time zone ${zone}. Point at a time to see it in UTC. “There” is the clock in the zone of its schedule.`),
      showClockChanges(found.scheduled),
      found.scheduled.length ? showCalendar(found.scheduled, days, page) : make("p", {}, "No pipeline has a schedule."),
      found.by_hand.length ? section(`Only by hand (${count(found.by_hand.length)})`, make("p", {}, found.by_hand.map((name, at) => [at ? ", " : "", link(place(name), name)]))) : null,
    ];
  },
};

function listDays(now) {
  return Array.from({ length: 8 }, (_, at) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + at));
}

// The changes of the clocks in a schedule's zone: from the offsets of two moments that follow each other.
export function listClockChanges(scheduled) {
  const found = new Map();
  for (const { pipeline, due } of scheduled) {
    for (let at = 1; at < due.length; at += 1) {
      const [before, after] = [readOffset(due[at - 1]), readOffset(due[at])];
      if (before === after) continue;
      const key = `${due[at].slice(0, 10)} ${before} ${after}`;
      found.set(key, { day: due[at].slice(0, 10), before, after, pipelines: [...(found.get(key)?.pipelines || []), pipeline] });
      break;
    }
  }
  return [...found.values()];
}

function readOffset(text) {
  return /([+-]\d\d:\d\d)$/.exec(text)?.[1] || "+00:00";
}

function showClockChanges(scheduled) {
  return listClockChanges(scheduled).map(({ day, before, after, pipelines }) => make("p", { class: "warning" },
    make("strong", {}, "Clocks change "), `by ${day}: from UTC${before} to UTC${after} in the zone of ${pipelines.join(", ")}. Their times in UTC move with it.`));
}

function showCalendar(scheduled, days, page) {
  const head = ["Pipeline", ...days.slice(0, 7).map((day, at) => (at ? DAY.format(day) : `Today, ${DAY.format(day)}`))];
  return table("Runs by day", head, scheduled.map((each) => [showName(each, page), ...showDays(each, days)]), { kind: "cards calendar" });
}

function showName(each, page) {
  const act = offer("hold_schedule", each.held === null ? "Hold" : "Release", () => holdSchedule(each.pipeline, each.held === null, page.refresh), { kind: "small", label: `${each.held === null ? "Hold" : "Release"} the schedule of ${each.pipeline}` });
  return make("div", { class: "scheduled" }, make("strong", {}, link(place(each.pipeline), each.pipeline)), make("span", { class: "dim" }, each.when),
    each.held === null ? null : make("span", { class: "warned" }, `held: ${each.held}`), act);
}

function showDays({ due, more, held }, days) {
  const moments = due.map((text) => ({ text, moment: new Date(text) }));
  const last = moments.at(-1)?.moment;
  return days.slice(0, 7).map((day, at) => {
    if (held !== null) return null;
    const own = moments.filter(({ moment }) => moment >= day && moment < days[at + 1]);
    if (!own.length) return make("span", { class: "dim" }, more && last < day ? "more" : "–");
    if (own.length > MOST) return [make("span", { class: "moment" }, `${count(own.length)} runs`), showTime(own[0]), "–", showTime(own.at(-1))];
    return own.map((each) => showMoment(each, moments[moments.indexOf(each) - 1]));
  });
}

function showMoment(each, before) {
  const there = each.text.slice(11, 16);
  const changed = before && readOffset(before.text) !== readOffset(each.text);
  return make("span", { class: "moment" }, showTime(each), there === TIME.format(each.moment) ? null : make("span", { class: "there dim small" }, ` ${there} there`), changed ? make("span", { class: "there warned small" }, " clocks changed") : null);
}

function showTime({ text, moment }) {
  const there = `${text.slice(11, 16)} UTC${readOffset(text)}`;
  return make("time", { datetime: text, title: `${formatUtc(moment)}, ${there} in the zone of its schedule` }, TIME.format(moment));
}
