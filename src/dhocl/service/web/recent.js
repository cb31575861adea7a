"use strict";
// The length of the queue and the newest observations.

const KEPT = 12;  // observations shown
const LOOKED = 100;  // observations requested; the newest may still be queued

let recent = [];  // learned or refused, newest first
const thumbnails = new Map();  // number -> object URL of a thumbnail

function drawNumbers({ learned, queued, refused, per_second, classes }) {
  at("learned").textContent = count(learned);
  at("queued").textContent = count(queued);
  at("per-second").textContent = per_second.toFixed(1);
  at("classes").textContent = count(Object.values(classes).reduce((sum, n) => sum + n, 0));
  at("refused").textContent = count(refused);
  at("refused-part").hidden = !refused;
}

function hearObservation(observation) {
  const others = recent.filter(({ number }) => number !== observation.number);
  recent = [observation, ...others].sort((a, b) => b.number - a.number).slice(0, KEPT);
}

async function loadRecent() {
  const newest = await read(`/observations/recent?n=${LOOKED}`);
  recent = newest.filter(({ state }) => state !== "queued").slice(0, KEPT);
}

function drawRecent() {
  const numbers = new Set(recent.map(({ number }) => number));
  for (const [number, address] of thumbnails)
    if (!numbers.has(number)) {
      URL.revokeObjectURL(address);
      thumbnails.delete(number);
    }
  at("recent").replaceChildren(...recent.map(drawObservation));
  at("none").hidden = recent.length > 0;
}

function drawObservation({ number, name, rank, time, state, predicted, thumbnail }) {
  const when = new Date(1000 * time);
  return make("li", {}, picture(number, thumbnail, name), make("div", {},
    make("div", { className: "name", dir: "auto" }, name),
    make("small", {}, `${rank} · `, make("time", { dateTime: when.toISOString(), title: when.toLocaleString() }, when.toLocaleTimeString())),
    make("small", {}, verdict(state, predicted))));
}

/** The prediction before learning. */
function verdict(state, predicted) {
  if (state === "refused") return make("span", { className: "wrong" }, "could not be learned");
  if (!predicted) return "not predicted";
  const sure = percent(predicted.probability);
  const said = predicted.right ? `✓ predicted, ${sure}` : `✗ predicted ${predicted.name}, ${sure}`;
  return make("span", { className: predicted.right ? "right" : "wrong" }, said);
}

/** Loaded by fetch, because thumbnails may need the token too. */
function picture(number, path, name) {
  if (thumbnails.has(number)) return make("img", { src: thumbnails.get(number), alt: "", title: name });
  const blank = make("span", { className: "blank" });
  ask(path).then(response => response.blob()).then(blob => {
    if (!blank.isConnected) return;
    if (!thumbnails.has(number)) thumbnails.set(number, URL.createObjectURL(blob));
    blank.replaceWith(make("img", { src: thumbnails.get(number), alt: "", title: name }));
  }).catch(() => {});  // an observation is shown without its thumbnail
  return blank;
}
