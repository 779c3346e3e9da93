// Which share of rows passed each rule, run by run.

import { draw, fit, link, make, section } from "./dom.js";
import { place } from "./overview.js";
import { count, formatMoment, percent } from "./words.js";

const [HIGH, EDGE, LEFT] = [90, 8, 44];

export function showQuality({ rules }, name) {
  if (!rules.length) return section("Quality", make("p", { class: "dim" }, "No run checked a rule. Stages such as require and expect have rules."));
  const ordered = [...rules].sort((a, b) => getLast(a) - getLast(b));
  return section("Quality, the worst rule first", make("div", { class: "rules" }, ordered.map((each) => showRule(each, name))));
}

function getLast({ runs }) {
  return runs.at(-1)?.share ?? 1;
}

function showRule({ stage, rule, runs }, name) {
  const now = runs.at(-1);
  const before = runs.at(-2);
  const drop = before && now.share !== null && before.share !== null ? now.share - before.share : 0;
  const change = Math.abs(drop) < 0.0005 ? "as in the run before" : `${drop > 0 ? "up" : "down"} ${(Math.abs(drop) * 100).toFixed(1)} points since the run before`;
  return make("article", { class: "rule", "aria-label": `${stage} ${rule}` },
    make("h3", {}, rule, make("span", { class: "dim" }, ` ${stage}`)),
    make("p", {}, make("strong", { class: now.share !== null && now.share < 1 ? "warned" : "fine" }, percent(now.share)), " passed, ", make("span", { class: drop < -0.0005 ? "warned" : "dim" }, change),
      now.failed ? make("span", { class: "warned" }, `. ${count(now.failed)} of ${count(now.batches)} batches failed it`) : ""),
    drawTrend(runs, rule),
    make("details", { class: "more", "data-key": `rule ${stage} ${rule}` }, make("summary", {}, "Run by run"),
      make("ul", { class: "plain small" }, runs.toReversed().map((each) => make("li", {}, link(place(name, "runs", each.run), formatMoment(new Date(each.started_at))), ` ${percent(each.share)}`)))));
}

function drawTrend(runs, rule) {
  const shares = runs.map((each) => each.share).filter((each) => each !== null);
  if (shares.length < 2) return null;
  const least = Math.min(...shares);
  const floor = least > 0.9 ? 0.9 : least > 0.5 ? 0.5 : 0;
  const y = (share) => EDGE + ((1 - share) / (1 - floor)) * (HIGH - 2 * EDGE);
  return fit("trend", (wide) => drawShares(shares, wide, y, floor, rule));
}

function drawShares(shares, wide, y, floor, rule) {
  const x = (at) => LEFT + (at * (wide - EDGE - LEFT)) / (shares.length - 1);
  const points = shares.map((share, at) => `${x(at).toFixed(1)},${y(share).toFixed(1)}`);
  return draw("svg", { width: wide, height: HIGH, viewBox: `0 0 ${wide} ${HIGH}`, role: "img", "aria-label": `${rule}: ${shares.map(percent).join(", ")}` },
    [1, floor].map((share) => [draw("line", { x1: LEFT, x2: wide - EDGE, y1: y(share), y2: y(share), class: "grid" }), draw("text", { x: LEFT - 8, y: y(share) + 4, class: "scale", "text-anchor": "end" }, `${share * 100}%`)]),
    draw("polyline", { points: points.join(" "), class: "line" }),
    shares.map((share, at) => draw("circle", { cx: x(at).toFixed(1), cy: y(share).toFixed(1), r: 3, class: share < 1 ? "dot less" : "dot" }, draw("title", {}, percent(share)))));
}
