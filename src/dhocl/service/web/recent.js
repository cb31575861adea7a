"use strict";
// The length of the queue and the newest observations. They are corrected in correcting.js.

const KEPT = 12;  // observations shown
const LOOKED = 100;  // observations requested; the newest may still be queued

let recent = [];  // learned or refused, newest first
const thumbnails = new Map();  // number -> object URL of a thumbnail

function drawNumbers({ learned, queued, refused, per_second, classes, replica }) {
  at("learned").textContent = count(learned);
  if (replica) drawReplica(replica);
  else {
    at("queued").textContent = count(queued);
    at("per-second").textContent = per_second.toFixed(1);
  }
  at("classes").textContent = count(Object.values(classes).reduce((sum, n) => sum + n, 0));
  at("refused").textContent = count(refused);
  at("refused-part").hidden = !refused;
}

/** Where to teach, and how old the model is. */
function drawReplica({ follows, writer, staleness, behind, problem }) {
  const place = writer ? make("a", { href: writer }, writer) : `the service that learns in ${follows}`;
  const lag = behind ? `, ${count(behind)} entries behind` : "";
  at("replica").replaceChildren("This is a replica, which only predicts. Teach at ", place, `. Its checkpoint is ${since(staleness)} old${lag}.`,
    problem ? ` No newer one arrives: ${problem}.` : "");
  at("replica").hidden = false;
}

function since(seconds) {
  const [unit, size] = [["days", 86400], ["hours", 3600], ["minutes", 60]].find(([, least]) => seconds >= 2 * least) ?? ["seconds", 1];
  return `${count(Math.round(seconds / size))} ${unit}`;
}

function hearObservation(observation) {
  const others = recent.filter(({ number }) => number !== observation.number);
  recent = [observation, ...others].sort((a, b) => b.number - a.number).slice(0, LOOKED);
}

/** The one that is being corrected stays. */
const shorten = newest => newest.filter(({ number }, place) => place < KEPT || number === opened);

async function loadRecent() {
  if (isReplica) return;
  const newest = await read(`/observations/recent?n=${LOOKED}`);
  recent = newest.filter(({ state }) => state !== "queued");
}

function drawRecent() {
  recent = shorten(recent);
  const numbers = new Set(recent.map(({ number }) => number));
  for (const [number, address] of thumbnails)
    if (!numbers.has(number)) {
      URL.revokeObjectURL(address);
      thumbnails.delete(number);
    }
  const held = document.activeElement.closest("#recent > li"), buttons = item => [...item?.querySelectorAll("button") ?? []];
  const focused = buttons(held).indexOf(document.activeElement);
  place(at("recent"), recent.map(drawObservation));
  if (held && !held.isConnected) buttons(at(held.id))[focused]?.focus();  // it was drawn anew
  at("none").hidden = recent.length > 0;
}

/** Its element. One that has not changed is kept: a button of it may have the focus. */
function drawObservation(observation) {
  const { number, name, rank, time, thumbnail } = observation, id = `observation-${number}`;
  const looks = JSON.stringify([observation, opened === number]), before = at(id);
  if (before?.looks === looks) return before;
  const when = new Date(1000 * time);
  const item = make("li", { id }, picture(number, thumbnail, name), make("div", {},
    make("div", { className: "name", dir: "auto" }, name),
    make("small", {}, `${rank} · `, make("time", { dateTime: when.toISOString(), title: when.toLocaleString() }, when.toLocaleTimeString())),
    make("small", {}, verdict(observation)), drawCorrecting(observation)), ...(opened === number ? [drawCorrection(observation)] : []));
  item.looks = looks;
  return item;
}

/** The prediction before learning. */
function verdict({ state, predicted, was }) {
  if (state === "refused") return make("span", { className: "wrong" }, "could not be learned");
  if (!predicted) return "not predicted";
  const sure = percent(predicted.probability);
  if (was) return `called ${was.name} before; predicted ${predicted.name}, ${sure}`;  // about the first label
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
