// The pipelines of the folder by the tables that feed each other.

import { ask, path } from "./api.js";
import { draw, link, make, section } from "./dom.js";
import { place } from "./overview.js";
import { count, fitText, getState, showState } from "./words.js";

const BOX = { wide: 170, high: 42, gapX: 90, gapY: 14 };

export const map = {
  title: "Map",
  every: 5,
  fetch: () => ask(path("pipelines")),
  draw({ pipelines }) {
    const { nodes, edges, alone } = arrange(pipelines);
    return [
      make("h1", {}, "Map"),
      make("p", { class: "dim" }, "An arrow goes from the pipeline that writes a table to the pipeline that reads it."),
      nodes.length ? make("div", { class: "wide map", tabindex: 0, role: "region", "aria-label": "Map of the pipelines" }, drawMap(nodes, edges)) : make("p", {}, "No pipeline reads the table of another."),
      nodes.length ? make("details", { class: "more", "data-key": "map in words" }, make("summary", {}, "The map in words"), listEdges(edges)) : null,
      alone.length ? section(`Connected to no other pipeline (${count(alone.length)})`, make("ul", { class: "alone" }, alone.map((each) => make("li", {}, showState(each.state), " ", link(place(each.pipeline), each.pipeline))))) : null,
    ];
  },
};

function arrange(pipelines) {
  const known = new Map(pipelines.map((each) => [each.pipeline, { ...each, feeds: [] }]));
  const edges = [];
  for (const to of known.values()) {
    for (const name of to.after) {
      const from = known.get(name);
      if (!from) continue;
      from.feeds.push(to);
      edges.push({ from, to, through: to.reads.find((each) => from.writes.includes(each)) || "" });
    }
  }
  const nodes = [...known.values()].filter((each) => each.after.length || each.feeds.length);
  for (const each of nodes) each.depth = measureDepth(each, known, new Set());
  const columns = [];
  for (const each of nodes) (columns[each.depth] ||= []).push(each);
  columns.forEach((column) => {
    column.sort((a, b) => findMiddle(a, known) - findMiddle(b, known) || a.pipeline.localeCompare(b.pipeline, "en", { numeric: true }));
    column.forEach((each, at) => { each.line = at; });
  });
  return { nodes, edges, alone: [...known.values()].filter((each) => !each.after.length && !each.feeds.length) };
}

function measureDepth(each, known, seen) {
  if (each.depth !== undefined) return each.depth;
  if (seen.has(each.pipeline)) return 0;
  seen.add(each.pipeline);
  return Math.max(-1, ...each.after.map((name) => known.get(name)).filter(Boolean).map((from) => measureDepth(from, known, seen))) + 1;
}

function findMiddle(each, known) {
  const lines = each.after.map((name) => known.get(name)?.line).filter((line) => line !== undefined);
  return lines.length ? lines.reduce((sum, line) => sum + line, 0) / lines.length : 0;
}

function drawMap(nodes, edges) {
  const columns = Math.max(...nodes.map((each) => each.depth)) + 1;
  const lines = Math.max(...nodes.map((each) => each.line)) + 1;
  for (const each of nodes) Object.assign(each, { x: 2 + each.depth * (BOX.wide + BOX.gapX), y: 2 + each.line * (BOX.high + BOX.gapY) });
  const [wide, high] = [columns * (BOX.wide + BOX.gapX) - BOX.gapX + 4, lines * (BOX.high + BOX.gapY) + 4];
  return draw("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": `${nodes.length} pipelines and ${edges.length} arrows` },
    draw("defs", {}, draw("marker", { id: "map-tip", viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z", class: "edge-tip" }))),
    edges.map(drawEdge), nodes.map(drawBox));
}

function drawEdge({ from, to, through }) {
  const [x1, y1, x2, y2] = [from.x + BOX.wide, from.y + BOX.high / 2, to.x - 7, to.y + BOX.high / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  return draw("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, class: "edge", "marker-end": "url(#map-tip)" }, draw("title", {}, `${from.pipeline} feeds ${to.pipeline}${through ? ` through ${through}` : ""}`));
}

function drawBox(each) {
  const { mark, text, kind } = getState(each.state);
  return draw("a", { href: `#/${place(each.pipeline)}`, "aria-label": `${each.pipeline}, ${text}` },
    draw("g", { class: `node map-node ${kind}` },
      draw("rect", { x: each.x, y: each.y, width: BOX.wide, height: BOX.high, rx: 6 }),
      draw("text", { x: each.x + 10, y: each.y + 18, class: "name" }, fitText(each.pipeline, BOX.wide - 20, { size: 13, weight: 600 })),
      draw("text", { x: each.x + 10, y: each.y + 34, class: "note" }, `${mark} ${text}${each.refused ? `, ${count(each.refused)} refused` : ""}`)));
}

function listEdges(edges) {
  return make("ul", { class: "plain small" }, edges.map(({ from, to, through }) => make("li", {}, link(place(from.pipeline), from.pipeline), " feeds ", link(place(to.pipeline), to.pipeline), through ? [" through ", make("code", {}, through)] : "")));
}
