// The flow of a pipeline as a picture: origins, stages, branches, destinations and the DLQ, with counts on the arrows.

import { draw, fit, make } from "./dom.js";
import { count, fitText, rows } from "./words.js";

const BOX = { wide: 148, high: 72, gapX: 66, gapY: 28 };

// Returns the picture. `report` has the counts of a run; `live` those of a run that works.
export function showFlow(definition, report, { live = null, runs = false, waiting = null } = {}) {
  const graph = makeGraph(definition, runs ? null : report, live);
  const place = fit("flow", (wide) => drawGraph(graph, wide, waiting));
  return [place, make("details", { class: "more", "data-key": "flow in words" }, make("summary", {}, "The flow in words"), describeGraph(graph))];
}

function nameStage(stage) {
  return stage.name || Object.keys(stage).find((key) => key !== "name") || "stage";
}

function nameKind(thing) {
  return Object.keys(thing).find((key) => !["name", "stages", "lanes", "was"].includes(key)) || "";
}

function describe(value) {
  if (typeof value === "string") return value;
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(describe).join(", ");
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([name, inner]) => `${name}: ${describe(inner)}`).join(", ");
}

function findPlace(value) {
  if (typeof value === "string") return value;
  return value?.path || value?.table || value?.topic || value?.url || describe(value);
}

function lastPart(text) {
  return String(text).replace(/\/+$/, "").split(/[/.]/).pop();
}

export function listDestinations(definition) {
  return definition.destinations.map(nameDestination);
}

function nameDestination(to) {
  return to.name || lastPart(findPlace(to[nameKind(to)]));
}

// A graph has chains of nodes: those of origins, the common one, and those of branches.
export function makeGraph(definition, report, live) {
  const given = definition.origins || (definition.origin ? [definition.origin] : []);
  const several = definition.destinations.length > 1;
  const stages = new Map((report?.stages || []).map((each) => [each.stage, each]));
  const counted = new Map();
  const number = (prefix, list, names = new Map()) => list.map((stage) => {
    const own = prefix + nameStage(stage);
    names.set(own, (names.get(own) || 0) + 1);
    const name = names.get(own) === 1 ? own : `${own}#${names.get(own)}`;
    counted.set(name, (counted.get(name) || 0) + 1);
    const kind = nameKind(stage) || nameStage(stage);
    return { kind: "stage", name, title: name.slice(prefix.length), note: describe(stage[kind]), counts: stages.get(name) || null };
  });
  const origins = given.map((origin) => {
    const kind = nameKind(origin);
    const title = origin.name || lastPart(findPlace(origin[kind]).replace(/\/[^/]*[*?][^/]*$/, "")) || kind;
    return [{ kind: "origin", name: title, title, note: `${kind} ${findPlace(origin[kind])}` }, ...number("", origin.stages || [])];
  });
  const common = number("", definition.stages || []);
  const branches = definition.destinations.map((to) => {
    const kind = nameKind(to);
    const name = nameDestination(to);
    const own = number(several ? `${name}/` : "", to.stages || []);
    const found = live ? { delivered: live.delivered[name] ?? 0 } : report?.destinations?.[name] || null;
    return [...own, { kind: "destination", name, title: name, note: `${kind} ${findPlace(to[kind])}`, delivered: found?.delivered ?? null, read: found?.read ?? null, owed: found?.owed || 0 }];
  });
  for (const node of [...origins.flat(), ...common]) if (node.counts && counted.get(node.name) > 1) node.counts = null;
  const read = live ? live.read : report?.read ?? null;
  const refused = live ? live.refused : report?.nacked ?? null;
  const byStages = [...stages.values()].reduce((sum, each) => sum + each.nacked, 0);
  return { origins, common, branches, read, refused, unread: live || refused === null ? 0 : Math.max(0, refused - byStages), live: Boolean(live) };
}

// The rows that leave a node on its arrow to the next one.
function countOut(node, next, graph) {
  if (next.kind === "destination") return next.delivered;
  const joins = graph.origins.length > 1 && !isOfOrigin(next, graph);
  if (next.counts && !joins) return next.counts.in;
  if (node.counts) return node.counts.out;
  return node.kind === "origin" && graph.origins.length === 1 ? graph.read : null;
}

function isOfOrigin(node, graph) {
  return graph.origins.some((chain) => chain.includes(node));
}

function listEdges(graph) {
  const edges = [];
  const follow = (chain) => chain.slice(1).forEach((node, at) => edges.push([chain[at], node]));
  graph.origins.forEach(follow);
  follow(graph.common);
  graph.branches.forEach(follow);
  const first = graph.common.length ? [graph.common[0]] : graph.branches.map((chain) => chain[0]);
  for (const chain of graph.origins) for (const node of first) edges.push([chain.at(-1), node]);
  if (graph.common.length) for (const chain of graph.branches) edges.push([graph.common.at(-1), chain[0]]);
  return edges.map(([from, to]) => ({ from, to, rows: countOut(from, to, graph), joins: graph.origins.length > 1 && !isOfOrigin(to, graph) && isOfOrigin(from, graph) }));
}

function listNodes(graph) {
  return [...graph.origins.flat(), ...graph.common, ...graph.branches.flat()];
}

function findRefused(node, graph) {
  if (node.kind === "origin") return graph.origins.length === 1 ? graph.unread : 0;
  return node.counts?.nacked || 0;
}

function drawGraph(graph, wide, waiting) {
  const before = Math.max(...graph.origins.map((chain) => chain.length), 0);
  const after = Math.max(...graph.branches.map((chain) => chain.length));
  const columns = before + graph.common.length + after;
  const needed = columns * BOX.wide + (columns - 1) * BOX.gapX + 4;
  const least = columns * 112 + (columns - 1) * 48 + 4;
  if (least > wide) return drawDown(graph, wide, waiting);
  const scale = Math.min(1.4, (wide - 4) / needed);
  const gap = Math.floor(BOX.gapX * Math.min(1.2, scale));
  return drawAcross(graph, wide, waiting, { before, columns, box: { wide: Math.floor(BOX.wide * scale), gap } });
}

function drawAcross(graph, wide, waiting, { before, columns, box }) {
  const lines = Math.max(graph.origins.length, graph.branches.length, 1);
  const pitch = BOX.high + BOX.gapY;
  const high = lines * pitch;
  const at = (column) => 2 + column * (box.wide + box.gap);
  const put = (chain, first, middle) => chain.forEach((node, index) => Object.assign(node, { x: at(first + index), y: middle - BOX.high / 2 + 2, w: box.wide, h: BOX.high }));
  const spread = (index, number) => (high / number) * (index + 0.5) - BOX.gapY / 2 + 8;
  graph.origins.forEach((chain, index) => put(chain, before - chain.length, spread(index, graph.origins.length)));
  put(graph.common, before, spread(0, 1));
  graph.branches.forEach((chain, index) => put(chain, before + graph.common.length, spread(index, graph.branches.length)));
  for (const chain of graph.branches) chain.at(-1).x = at(columns - 1);
  const bottom = high + 26;
  const all = Math.min(wide, at(columns - 1) + box.wide + 2);
  const refusals = listNodes(graph).filter((node) => findRefused(node, graph));
  return picture(graph, wide, bottom + 46, [
    refusals.map((node) => drawRefusal(findRefused(node, graph), [[node.x + node.w / 2, node.y + node.h], [node.x + node.w / 2, bottom - 2]], node.x + node.w / 2 + 6, node.y + node.h + 17, "start")),
    listEdges(graph).map(drawAcrossEdge),
    listNodes(graph).map((node) => drawNode(node, graph)),
    drawDlq(2, bottom, all - 4, 40, graph, waiting),
  ]);
}

function drawAcrossEdge({ from, to, rows: number, joins }) {
  const [x1, y1, x2, y2] = [from.x + from.w, from.y + from.h / 2, to.x, to.y + to.h / 2];
  const bend = (x2 - x1) / 2;
  const line = y2 === y1 ? `M${x1} ${y1}H${x2 - 7}` : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 7} ${y2}`;
  const straight = y1 === y2;
  const [x, y, anchor] = straight ? [(x1 + x2) / 2 - 2, y2 - 7, "middle"] : joins ? [x1 + 8, y1 + (y2 > y1 ? -7 : 17), "start"] : [x2 - 10, y2 + (y2 > y1 ? 17 : -7), "end"];
  const mark = number === null ? null : draw("text", { x, y, class: "count", "text-anchor": anchor }, count(number));
  return [draw("path", { d: line, class: "edge", "marker-end": "url(#tip)" }), mark];
}

// On a narrow screen the boxes stand below each other, and the DLQ is a rail at the right.
function drawDown(graph, wide, waiting) {
  const indent = 16;
  const rail = 74;
  const nodes = listNodes(graph);
  let y = 4;
  for (const node of nodes) {
    Object.assign(node, { x: indent, y, w: Math.min(wide - indent - rail, 420), h: BOX.high });
    y += BOX.high + 30;
  }
  const right = nodes[0].x + nodes[0].w + rail - 12;
  const refusals = nodes.filter((node) => findRefused(node, graph));
  return picture(graph, wide, y + 46, [
    listEdges(graph).map((edge) => drawDownEdge(edge, nodes)),
    refusals.map((node) => {
      const middle = node.y + node.h / 2;
      return drawRefusal(findRefused(node, graph), [[node.x + node.w, middle], [right, middle], [right, y - 2]], node.x + node.w + 5, middle - 5, "start");
    }),
    nodes.map((node) => drawNode(node, graph)),
    drawDlq(indent, y, nodes[0].w + rail - 2, 40, graph, waiting),
  ]);
}

function drawDownEdge({ from, to, rows: number }, nodes) {
  const straight = nodes.indexOf(to) === nodes.indexOf(from) + 1;
  const middle = from.x + 28;
  const line = straight ? `M${middle} ${from.y + from.h}V${to.y - 7}`
    : `M${from.x} ${from.y + from.h / 2}H5V${to.y + to.h / 2}H${to.x - 7}`;
  const mark = number === null ? null : draw("text", { x: middle + 8, y: to.y - 10, class: "count" }, count(number));
  return [draw("path", { d: line, class: "edge", "marker-end": "url(#tip)" }), mark];
}

function drawRefusal(number, points, x, y, anchor) {
  const line = points.map(([px, py], at) => `${at ? "L" : "M"}${px} ${py}`).join("");
  return [draw("path", { d: line, class: "edge refusal", "marker-end": "url(#bad-tip)" }), draw("text", { x, y, class: "count bad", "text-anchor": anchor }, count(number))];
}

function drawNode(node, graph) {
  const note = fitText(node.note, node.w - 18);
  const fact = describeCounts(node, graph);
  const top = node.y + (node.h - (fact ? 3 : 2) * 18) / 2 + 13;
  return draw("g", { class: `node ${node.kind}${node.owed ? " bad" : ""}` },
    draw("title", {}, `${node.title}: ${node.note}`),
    draw("rect", { x: node.x, y: node.y, width: node.w, height: node.h, rx: 6 }),
    draw("text", { x: node.x + 10, y: top, class: "name" }, fitText(node.title, node.w - 18, { size: 13, weight: 600 })),
    draw("text", { x: node.x + 10, y: top + 18, class: "note" }, note),
    fact ? draw("text", { x: node.x + 10, y: top + 36, class: `fact ${node.kind}` }, fact) : null);
}

function describeCounts(node, graph) {
  if (node.owed) return `${count(node.owed)} batches owed`;
  if (node.kind === "origin") return graph.origins.length === 1 && graph.read !== null ? `${count(graph.read)} read` : "";
  if (node.kind === "destination") return node.delivered === null ? "" : `${count(node.delivered)} delivered`;
  return node.counts?.filtered ? `${count(node.counts.filtered)} filtered` : "";
}

function drawDlq(x, y, wide, high, graph, waiting) {
  const unread = graph.origins.length > 1 && graph.unread ? ` (${count(graph.unread)} while reading)` : "";
  const now = graph.refused === null ? "" : `${rows(graph.refused, "refused")} in this run${unread}`;
  const all = waiting === null || waiting === undefined ? "" : `${count(waiting)} wait in all`;
  const text = [now, all].filter(Boolean).join(", ") || "Refused rows go here";
  return draw("g", { class: `node dlq${graph.refused ? " some" : ""}` },
    draw("rect", { x, y, width: wide, height: high, rx: 6 }),
    draw("text", { x: x + 10, y: y + 25 }, draw("tspan", { class: "name" }, "DLQ"), draw("tspan", { class: "note", dx: 10 }, fitText(text, wide - 62))));
}

function picture(graph, wide, high, content) {
  return draw("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": summarise(graph) },
    draw("defs", {}, drawTip("tip", "edge-tip"), drawTip("bad-tip", "bad-tip")), content);
}

function drawTip(id, kind) {
  return draw("marker", { id, viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z", class: kind }));
}

function summarise(graph) {
  const from = graph.origins.map(([origin]) => origin.title).join(", ");
  const to = graph.branches.map((chain) => chain.at(-1)).map((node) => `${node.title}${node.delivered === null ? "" : ` gets ${rows(node.delivered)}`}`).join(", ");
  const stages = listNodes(graph).filter((node) => node.kind === "stage").length;
  return `The flow from ${from} through ${stages} stages. ${to}. ${graph.refused === null ? "" : `${rows(graph.refused)} refused.`}`;
}

function describeGraph(graph) {
  return make("ol", { class: "small" }, listNodes(graph).map((node) => {
    const counts = node.counts ? `: ${count(node.counts.in)} in, ${count(node.counts.out)} out, ${count(node.counts.filtered)} filtered, ${count(node.counts.nacked)} refused` : "";
    const end = node.kind === "destination" && node.delivered !== null ? `: ${rows(node.delivered)} delivered` : "";
    const begin = node.kind === "origin" && graph.origins.length === 1 && graph.read !== null ? `: ${rows(graph.read)} read${graph.unread ? `, ${count(graph.unread)} refused while reading` : ""}` : "";
    return make("li", {}, make("strong", {}, `${node.kind} ${node.title}`), ` (${node.note})${counts}${begin}${end}`);
  }));
}
