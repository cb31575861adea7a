"use strict";
// Accuracy of each rank over the observations learned: a plot, and a table of the current values.

const COLOURS = ["#2f7fd0", "#d9681d", "#15976f", "#a561cf", "#d64560", "#1593a8", "#8a8f2a", "#7f868e"];
const POINTS = 800;  // largest number of points stored
const FEW = 12;  // points that are drawn as dots: a line through them would promise a trend
const EDGE = { left: 44, right: 16, top: 8, bottom: 34 };
const colour = rank => COLOURS[tree.ranks.indexOf(rank) % COLOURS.length];

let points = [], judged = {}, classes = {}, pointed = null;  // points: { learned, accuracy: { rank: share } }

function hearAccuracy({ learned, ranks, classes: known, history }) {
  if (history) points = history;
  const seen = Object.entries(ranks).filter(([, value]) => value.recent !== null);
  const accuracy = Object.fromEntries(seen.map(([rank, value]) => [rank, value.recent]));
  if (learned > (points.at(-1)?.learned ?? 0)) points.push({ learned, accuracy });
  if (points.length > POINTS) points = points.filter((_, place) => place % 2 || place > POINTS - 100);
  judged = ranks;
  classes = known;
}

function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/** A few round numbers up to a largest one. */
function ticks(most) {
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = Math.max(1, [1, 2, 5, 10].find(factor => factor * power >= rough) * power);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, place) => place * step);
}

function drawCurve() {
  const drawing = at("curve"), width = drawing.clientWidth, height = drawing.clientHeight;
  const most = Math.max(1, points.at(-1)?.learned ?? 1), bottom = height - EDGE.bottom;
  const x = learned => EDGE.left + (width - EDGE.left - EDGE.right) * learned / most;
  const y = share => bottom - (bottom - EDGE.top) * share;
  const parts = [0, .25, .5, .75, 1].flatMap(share => [
    svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(share), y2: y(share) }),
    svg("text", { x: EDGE.left - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share)),
  ]);
  for (const tick of points.length ? ticks(most) : []) parts.push(svg("text", { x: x(tick), y: bottom + 15, "text-anchor": "middle" }, count(tick)));
  parts.push(svg("text", { x: width - EDGE.right, y: height - 3, "text-anchor": "end" }, "observations learned"));
  for (const rank of tree.ranks) {
    const spots = points.filter(point => rank in point.accuracy).map(point => [x(point.learned), y(point.accuracy[rank])]);
    if (points.length <= FEW) parts.push(...spots.map(([cx, cy]) => svg("circle", { class: "dot", cx, cy, r: 4, fill: colour(rank) })));
    else parts.push(svg("polyline", { class: "line", stroke: colour(rank), points: spots.map(spot => spot.join(",")).join(" ") }));
  }
  const point = points[pointed];
  if (point) {
    parts.push(svg("line", { class: "now", x1: x(point.learned), x2: x(point.learned), y1: EDGE.top, y2: bottom }));
    for (const [rank, share] of Object.entries(point.accuracy))
      parts.push(svg("circle", { cx: x(point.learned), cy: y(share), r: 4.5, fill: colour(rank) }));
  }
  drawing.replaceChildren(...parts);
  tellMoment(point ?? points.at(-1), Boolean(point));
}

/** Show the numbers at a point, also to screen readers. */
function tellMoment(point, isChosen) {
  const shares = point ? tree.ranks.filter(rank => rank in point.accuracy).map(rank => `${rank} ${percent(point.accuracy[rank], 1)}`) : [];
  const text = point ? `after ${count(point.learned)}: ${shares.join(", ")}` : "nothing is learned yet";
  at("moment").textContent = isChosen ? text : "Recent: the last 200 observations of a rank.";
  const values = { "aria-valuemax": Math.max(0, points.length - 1), "aria-valuenow": pointed ?? Math.max(0, points.length - 1), "aria-valuetext": text };
  for (const [name, value] of Object.entries(values)) at("curve").setAttribute(name, value);
}

function drawRanks() {
  const share = value => value === null ? "–" : percent(value, 1);
  at("ranks").replaceChildren(...tree.ranks.filter(rank => rank in judged).map(rank => {
    const key = make("span", { className: "key" });
    key.style.background = colour(rank);
    const { seen, accuracy, recent } = judged[rank];
    const cells = [count(classes[rank] ?? 0), count(seen), share(accuracy), share(recent)];
    return make("tr", {}, make("th", { scope: "row" }, key, rank), ...cells.map(text => make("td", { className: "number" }, text)));
  }));
}

function point(place) {
  pointed = points.length && place !== null ? Math.min(points.length - 1, Math.max(0, place)) : null;
  drawCurve();
}

at("curve").onpointermove = at("curve").onpointerdown = event => {
  const drawing = at("curve"), most = Math.max(1, points.at(-1)?.learned ?? 1);
  const learned = (event.offsetX - EDGE.left) / (drawing.clientWidth - EDGE.left - EDGE.right) * most;
  const away = points.map(({ learned: there }) => Math.abs(there - learned));
  point(away.indexOf(Math.min(...away)));
};
at("curve").onpointerleave = () => point(null);
at("curve").onblur = () => point(null);
at("curve").onkeydown = event => {
  const last = points.length - 1, now = pointed ?? last + 1;
  const moves = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: last, PageUp: now + 10, PageDown: now - 10 };
  if (!(event.key in moves)) return;
  event.preventDefault();
  point(moves[event.key]);
};
new ResizeObserver(() => requestAnimationFrame(drawCurve)).observe(at("curve"));
