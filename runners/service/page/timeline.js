// When each lane of a run worked on batches, and on what.

import { draw, fit, make, section, table } from "./dom.js";
import { count, duration, fitText, plural } from "./words.js";

const PHASES = { plan: "planning", read: "reading", write: "writing", dlq: "refused rows", ledger: "ledger", rest: "resting" };
const LINE = 22;
const MOST = 60;

export function showTimeline(report) {
  const lanes = Object.entries(report.timeline || {});
  const whole = Math.max(0, ...lanes.flatMap(([, parts]) => parts.map((part) => part.end)));
  if (!whole) return null;
  const place = fit("timeline", (wide) => drawLanes(lanes.slice(0, MOST), whole, wide));
  const spent = Object.entries(report.spent || {}).filter(([name, seconds]) => PHASES[name] && seconds >= 0.0005);
  return section("What each lane did over time",
    make("p", { class: "keys" }, spent.map(([name, seconds]) => make("span", { class: "key" }, draw("svg", { width: 10, height: 10, "aria-hidden": "true" }, draw("rect", { width: 10, height: 10, rx: 2, class: `phase ${name}` })), `${PHASES[name]} ${duration(seconds)}`))),
    place,
    lanes.length > MOST ? make("p", { class: "dim" }, `and ${count(lanes.length - MOST)} more lanes`) : null,
    make("details", { class: "more", "data-key": "timeline in words" }, make("summary", {}, "The same as a table"), listLanes(lanes)));
}

function drawLanes(lanes, whole, wide) {
  const left = Math.min(Math.max(30, Math.max(...lanes.map(([name]) => name.length)) * 7.5 + 14), wide / 4);
  const scale = (wide - left - 4) / whole;
  const high = lanes.length * LINE + 22;
  const content = lanes.map(([name, parts], at) => {
    const y = at * LINE;
    return draw("g", {}, draw("title", {}, describeLane(name, parts)),
      draw("text", { x: 0, y: y + 14, class: "lane" }, fitText(name, left - 8)),
      draw("rect", { x: left, y: y + 2, width: wide - left - 4, height: LINE - 6, rx: 2, class: "track" }),
      parts.map((part) => drawPart(part, left, y, scale)));
  });
  return draw("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${plural(lanes.length, "lane")} over ${duration(whole)}` },
    content, drawScale(whole, left, scale, high, wide));
}

function drawPart(part, left, y, scale) {
  const spent = Object.entries(part.spent).filter(([name, seconds]) => PHASES[name] && seconds);
  const sum = spent.reduce((total, [, seconds]) => total + seconds, 0) || 1;
  const width = Math.max(1.5, (part.end - part.start) * scale);
  let x = left + part.start * scale;
  return spent.map(([name, seconds]) => {
    const own = (width * seconds) / sum;
    const drawn = draw("rect", { x: x.toFixed(2), y: y + 2, width: own.toFixed(2), height: LINE - 6, class: `phase ${name}` });
    x += own;
    return drawn;
  });
}

function drawScale(whole, left, scale, high, wide) {
  const parts = wide > 600 ? 4 : 2;
  return Array.from({ length: parts + 1 }, (_, at) => draw("text", {
    x: left + (whole * scale * at) / parts, y: high - 5, class: "scale", "text-anchor": at === 0 ? "start" : at === parts ? "end" : "middle",
  }, at ? duration((whole * at) / parts) : "0 s"));
}

function describeLane(name, parts) {
  const batches = parts.reduce((sum, part) => sum + part.batches, 0);
  const busy = parts.reduce((sum, part) => sum + Object.values(part.spent).reduce((a, b) => a + b, 0), 0);
  return `lane ${name}: ${plural(batches, "batch", "batches")}, ${duration(busy)} of work`;
}

function listLanes(lanes) {
  const sum = (parts, name) => parts.reduce((total, part) => total + (part.spent[name] || 0), 0);
  return table("Work by lane", ["Lane", { name: "Batches", number: true }, ...Object.values(PHASES).map((name) => ({ name, number: true }))],
    lanes.map(([name, parts]) => [name, count(parts.reduce((total, part) => total + part.batches, 0)), ...Object.keys(PHASES).map((phase) => duration(sum(parts, phase)))]));
}
