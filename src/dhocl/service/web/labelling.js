"use strict";
// Label images one after the other: those first whose labels would teach most.

const AHEAD = 12, MOST_AHEAD = 100;  // suggestions requested

let subject = null, ahead = [], pool = null;  // the suggestion that is shown; the next ones; images without a label
let naming = false;  // whether the form is open
const skipped = new Set(), finished = new Set();  // ids

const isLabelling = () => !isReplica && location.hash === "#label";

function sayLabel(text, problem = "") {
  at("labelled").textContent = problem || text;
  at("labelled").className = problem ? "notice" : "soft";
}

/** Request suggestions. The image that is shown stays as it is: a key may be on its way. */
async function renew() {
  const found = await read(`/suggestions?count=${Math.min(MOST_AHEAD, AHEAD + skipped.size)}`);
  ahead = found.suggestions.filter(({ id }) => id !== subject?.id && !skipped.has(id) && !finished.has(id));
  pool = found.pool;
}

/** Show the next image. When all were skipped, they come again. */
async function next() {
  subject = null;
  if (!ahead.length) await renew();
  if (!ahead.length && skipped.size && pool) {
    skipped.clear();
    await renew();
    if (ahead.length) sayLabel("All were skipped, so they come again.");
  }
  present(ahead.shift() ?? null);
}

function present(suggestion) {
  subject = suggestion;
  naming = Boolean(subject && !subject.guess);
  drawNaming();
  if (at("stage").contains(document.activeElement) || document.activeElement === document.body) at("stage").focus({ preventScroll: true });
  drawSubject(suggestion);
  if (ahead[0]) blobOf(ahead[0]).catch(() => {});  // loaded before it is needed
}

async function drawSubject(suggestion) {
  at("subject").hidden = at("label-why").hidden = true;
  if (!suggestion) return;
  const blob = await blobOf(suggestion).catch(() => null);
  if (!blob || subject !== suggestion) return;
  URL.revokeObjectURL(at("subject").src);
  at("subject").src = URL.createObjectURL(blob);
  at("subject").hidden = false;
  const { rank, guess } = suggestion;
  if (guess) explain(blob, { name: guess.name, rank }, at("label-why"), () => subject === suggestion);
}

function drawLabelling() {
  at("left").textContent = pool === null ? "" : `${count(pool)} without a label`;
  const last = deeds.at(-1), { name, about } = question();
  if (at("question-name").textContent !== name) at("question-name").textContent = name;
  at("question-about").textContent = about;
  for (const [id, may] of Object.entries({ yes: subject?.guess, other: subject, skip: subject, remove: subject, undo: last }))
    at(`label-${id}`).disabled = busy || !may;
  at("label-undo").title = last ? (last.number === null ? "the image that was skipped" : `takes back ${last.name}`) : "";
  at("label-other").setAttribute("aria-expanded", naming);
  at("label-path").replaceChildren(...(subject?.path ?? []).map(drawStep));
}

/** What is asked about the image: { name, about }. */
function question() {
  if (!subject && (busy || pool === null)) return { name: "Choosing an image …", about: "" };
  if (!subject && pool) return { name: "Not ready yet", about: "The images are being compared. This takes seconds." };
  if (!subject) return { name: "No images without a label", about: "Add some below: they are suggested by what their labels would teach." };
  const { rank, guess, path } = subject;
  if (guess) return { name: `${guess.name}?`, about: `${rank}, ${percent(guess.probability)}. A label of this rank would teach most.` };
  const why = path.length ? `No ${rank} is predicted for it.` : "Nothing is learned yet.";
  return { name: `Which ${rank}?`, about: `${why} Name the image; any rank is accepted.` };
}

function drawStep({ rank, name, probability }) {
  const right = make("button", { type: "button", disabled: busy, onclick: () => give(name, rank) }, "Right");
  right.setAttribute("aria-label", `right, it is ${name}`);
  const middle = make("div", {}, make("div", { className: probability >= SURE ? "name" : "name apart", dir: "auto" }, name), drawShare(probability));
  return make("li", {}, make("div", { className: "guess" }, make("span", { className: "rank" }, rank), middle, make("div", { className: "acts" }, right)));
}

function drawNaming() {
  const { rank, guess } = subject ?? {};
  at("label-naming").replaceChildren(...(naming ? [nameForm({ rank, guess, ranks: tree.ranks, verb: "Label", give })] : []));
}

function openNaming(open) {
  if (!subject) return;
  naming = open;
  drawNaming();
  drawLabelling();
  (open ? at("label-naming").querySelector("input") : at("stage")).focus();
}

const confirmGuess = () => { if (subject?.guess) give(subject.guess.name, subject.rank); };

// -- the mode, its buttons and its keys ------------------------------------------------------------------------------------

/** New suggestions after something was learned; the first image, if none is shown. */
const soonRenew = calm(() => {
  if (!isLabelling() || busy) return;
  renew().then(() => {
    if (!subject && ahead.length) attempt(next, sayLabel);
    else drawLabelling();
  }).catch(() => {});
}, 3000);

function enterMode() {
  at("overview").hidden = isLabelling();
  at("labelling").hidden = !isLabelling();
  at("label-mode").setAttribute("aria-pressed", isLabelling());
  if (isLabelling()) at("stage").focus({ preventScroll: true });  // Enter would press the button of the mode again
  if (isLabelling() && tree.version >= 0) soonRenew();  // else once the tree is there
  if (!isLabelling()) requestAnimationFrame(() => { drawTree(); drawCurve(); });  // they had no size
}

const LABEL_KEYS = { Enter: confirmGuess, y: confirmGuess, c: () => openNaming(true), s: skip, u: undoLabel, Delete: askRemove };

document.addEventListener("keydown", event => {
  if (!isLabelling() || event.repeat || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const work = LABEL_KEYS[event.key] ?? LABEL_KEYS[event.key.toLowerCase()], target = event.target;
  if (at("label-naming").contains(target) && event.key === "Escape") return openNaming(false);
  if (!work || busy || target.matches("input, select") || (event.key === "Enter" && target.matches("button, a"))) return;
  event.preventDefault();
  work();
});
at("label-yes").onclick = confirmGuess;
at("label-other").onclick = () => openNaming(!naming);
at("label-skip").onclick = skip;
at("label-undo").onclick = undoLabel;
at("label-remove").onclick = askRemove;
at("label-mode").onclick = () => { location.hash = isLabelling() ? "" : "label"; };
window.addEventListener("hashchange", enterMode);
