// Makes elements. Text goes in as text nodes only, so that nothing from the server is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function make(name, given = {}, ...children) {
  return fill(document.createElement(name), given, children);
}

export function draw(name, given = {}, ...children) {
  return fill(document.createElementNS(SVG, name), given, children);
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

// Puts new content in the place of the old one. What had the focus, and what was open, is found again by its key.
export function swap(place, ...children) {
  const focused = place.contains(document.activeElement) ? findKey(document.activeElement) : null;
  const open = new Set([...place.querySelectorAll("details[open][data-key]")].map((each) => each.dataset.key));
  const content = document.createDocumentFragment();
  append(content, children);
  for (const each of content.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = true;
  place.replaceChildren(content);
  if (focused) focusOn(focused, place);
}

export function focusOn(key, place = document) {
  [...place.querySelectorAll("a, button, input, select, summary, [tabindex]")].find((each) => findKey(each) === key)?.focus({ preventScroll: true });
}

export function findKey(element) {
  return element.dataset?.key || element.id || element.getAttribute("href") || element.getAttribute("aria-label") || "";
}

// A table that becomes a list of cards on a phone. `head` has texts, or {name, number, wide, quiet}.
export function table(called, head, rows, { marks = [], kind = "" } = {}) {
  const columns = head.map((each) => (typeof each === "string" ? { name: each } : each));
  const line = make("tr", { role: "row" }, columns.map((each) =>
    make("th", { role: "columnheader", scope: "col", class: each.number ? "n" : null }, each.name)));
  const body = rows.map((cells, at) => make("tr", { role: "row", class: marks[at] || null }, cells.map((cell, column) => {
    const { name, number } = columns[column];
    return make("td", { role: "cell", class: number ? "n" : null, "data-label": name }, Array.isArray(cell) ? make("span", {}, cell) : cell);
  })));
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": called },
    make("table", { role: "table", class: kind || null, "aria-label": called },
      make("thead", { role: "rowgroup" }, line), make("tbody", { role: "rowgroup" }, body)));
}

export function button(text, act, { label = null, kind = "", key = null } = {}) {
  return make("button", { type: "button", class: kind || null, "aria-label": label, "data-key": key || label || text, on: { click: act } }, text);
}

export function link(to, text, kind = "") {
  return make("a", { href: `#/${to}`, class: kind || null }, text);
}

export function section(title, ...children) {
  const content = children.flat(Infinity).filter(Boolean);
  return content.length ? make("section", {}, make("h2", {}, title), content) : null;
}

// A place for a picture that is drawn for its width, and again when the width changes.
export function fit(kind, paint) {
  const place = make("div", { class: kind });
  let wide = 0;
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.floor(contentRect.width);
    if (now < 100 || now === wide) return;
    wide = now;
    place.replaceChildren(paint(wide));
  }).observe(place);
  return place;
}
