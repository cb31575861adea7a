"use strict";
// Predict an image, and post a correction of the prediction as an observation.

const TAKEN = ["image/jpeg", "image/png", "image/webp"];
const UNREADABLE = 415;  // as if the service had refused the type
const SIDE = 2048, LARGE = 4 * 2 ** 20;  // an image with more pixels per side or more bytes is scaled down before upload

let given = null, prediction = null, editing = null, busy = false;
let truth = null, loose = null;  // of the image, as taught: { name, rank }; a new class to link: { name, rank, below }

function tell(text, problem = "") {
  at("told").textContent = text;
  at("problem").textContent = problem;
  at("problem").hidden = !problem;
}

/** Run an action and show its error, if any, by `say`. Only one action runs at a time. */
async function attempt(work, say = tell) {
  if (busy) return;
  busy = true;
  declined = false;
  drawBusy();
  try {
    await work();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    say("", problem.message);
  } finally {
    busy = false;
    drawBusy();
  }
}

function drawBusy() {
  drawPath();
  drawEditing();
  drawLabelling();
}

/** Files that are dropped, pasted or chosen: one to predict, or many to label. */
const receive = files => isLabelling() ? addImages([...files]) : take(files[0]);

function take(file) {
  if (!file) return;
  attempt(async () => {
    tell("Predicting …");
    given = prediction = editing = truth = loose = null;
    at("preview").hidden = at("why").hidden = true;
    given = await small(file);
    URL.revokeObjectURL(at("preview").src);
    at("preview").src = URL.createObjectURL(given);
    at("preview").hidden = false;
    editing = isReplica ? null : tree.ranks.at(-1);
    await predict();
  });
}

/** The file itself, or a smaller JPEG if it is large or in a format that the service does not accept. */
async function small(file) {
  if (TAKEN.includes(file.type) && file.size <= LARGE) return file;
  let image;
  try {
    image = await createImageBitmap(file);
  } catch {
    throw new Problem("This file can not be read as an image. Use JPEG, PNG or WebP.", UNREADABLE);
  }
  const scale = Math.min(1, SIDE / Math.max(image.width, image.height));
  const canvas = make("canvas", { width: Math.ceil(scale * image.width), height: Math.ceil(scale * image.height) });
  const brush = canvas.getContext("2d");
  brush.fillStyle = "#fff";  // background of transparent pixels
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise(done => canvas.toBlob(done, "image/jpeg", .9));
}

async function predict() {
  if (!tree.nodes.size) return tell(`Nothing is learned yet${isReplica ? "" : ": name the image"}.`);
  const shown = prediction = await predictOne(given);
  if (!isReplica) explain(given, shown.sure ?? shown.path[0], at("why"), () => prediction === shown);
  tell("");
}

function teach(name, rank) {
  attempt(async () => {
    const form = new FormData(), isNew = !findNode(name, rank);
    const above = prediction?.path.filter(node => depth(node.rank) < depth(rank)).at(-1);
    form.append("image", given, "image");
    form.append("name", name);
    form.append("rank", rank);
    const { accepted: [number] } = await ask("/observations", { method: "POST", body: form }).then(response => response.json());
    editing = null;
    tell(`Accepted as number ${count(number)}. Learning …`);
    drawPath();
    await settle(number);
    loose = isNew && above ? { name, rank, below: above } : null;
    await catchUp();
    truth = finest(truth, { name, rank });
    const node = findNode(name, rank);
    if (node) reveal(node);
    await predict();
    tell(`Learned that this is ${name} (${rank}).`);
  });
}

/** Resolves when an entry has been applied. */
async function settle(number) {
  for (let wait = 200; ; wait = Math.min(2000, 1.5 * wait)) {
    await pause(wait);
    const { state, reason } = await read(`/entries/${number}`);
    if (state === "refused") throw new Problem(`Refused: ${reason ?? "see the log of the service"}.`);
    if (state !== "queued") return;
  }
}

function drawPath() {
  at("path").hidden = !given;
  at("choose").disabled = busy;
  const isInside = at("path").contains(document.activeElement);
  if (given) at("path").replaceChildren(...tree.ranks.map(drawGuess));
  at("answer").hidden = !given || !prediction;
  if (!at("answer").hidden) {
    const { name, about } = headline(prediction, truth);
    at("answer-name").textContent = name;
    at("answer-about").textContent = about;
  }
  if (isInside) at("path").focus();  // the focused element was removed
  drawOffer();
}

/** The class of a rank and what to say about it: what was taught, else the path, else the rank by itself. */
function guessAt(rank) {
  const onPath = prediction?.path.find(node => node.rank === rank), next = prediction?.next[rank];
  const name = truthOf(truth).get(rank), guess = onPath ?? next;
  if (name !== undefined) {
    const isRight = onPath?.name === name;
    return { guess: { name, probability: isRight ? onPath.probability : null }, isSure: true,
      about: isRight || !guess ? "as taught" : `as taught; predicted: ${guess.name}, ${percent(guess.probability)}` };
  }
  if (!guess) return { guess, about: "" };
  if (!onPath) return { guess, isSure: false, about: "most probable at this rank, not on this path" };
  if (truth && !agrees(prediction, truthOf(truth))) return { guess, isSure: false, about: `not below ${truth.name}` };
  const about = prediction.notes[rank] ?? (next ? `or ${next.name}, ${percent(next.probability)}` : "");
  return { guess, isSure: guess.probability >= SURE, about };
}

function drawGuess(rank) {
  const { guess, isSure, about } = guessAt(rank);
  const other = make("button", { type: "button", disabled: busy, "aria-expanded": editing === rank }, guess ? "Another" : "Name it");
  other.setAttribute("aria-label", guess ? `another ${rank}` : `name it: the ${rank}`);
  other.onclick = () => {
    editing = editing === rank ? null : rank;
    drawPath();
    at("path").querySelector(".other input")?.focus();
  };
  const parts = make("div", { className: "guess" }, make("span", { className: "rank" }, rank));
  const middle = make("div"), acts = make("div", { className: "acts" });
  parts.append(middle, ...(isReplica ? [] : [acts]));
  if (guess) {
    const right = make("button", { type: "button", disabled: busy, onclick: () => teach(guess.name, rank) }, "Right");
    right.setAttribute("aria-label", `right, it is ${guess.name}`);
    acts.append(right);
    middle.append(make("div", { className: isSure ? "name" : "name apart", dir: "auto" }, guess.name));
    if (guess.probability !== null) middle.append(drawShare(guess.probability));
  } else middle.append("–");
  if (about) middle.append(make("div", { className: "rather" }, about));
  acts.append(other);
  return make("li", {}, parts, ...(editing === rank ? [nameForm({ rank, guess, verb: "Teach", give: teach })] : []));
}

function drawShare(probability) {
  const bar = make("div", { className: "bar" }, make("span"));
  bar.firstChild.style.width = `${100 * probability}%`;
  return make("div", { className: "share" }, bar, percent(probability, 1));
}

/** Offer to link a new class below the parent that was predicted for its image. */
function drawOffer() {
  const node = loose && findNode(loose.name, loose.rank), parent = loose && findNode(loose.below.name, loose.below.rank);
  at("offer").hidden = !node || !parent || node.parent !== null || busy;
  if (at("offer").hidden) return;
  const [text, button] = at("offer").children;
  text.textContent = `${node.name} is not linked to the tree yet.`;
  button.textContent = `Put it below ${parent.name}`;
  button.onclick = () => attempt(async () => {
    await move(node, parent);
    tell(`${node.name} is below ${parent.name} now.`);
  });
}

at("choose").onclick = () => at("file").click();
at("file").onchange = event => { take(event.target.files[0]); event.target.value = ""; };
document.addEventListener("paste", event => receive(event.clipboardData.files));
for (const kind of ["dragenter", "dragover", "dragleave", "drop"])
  document.addEventListener(kind, event => {
    if (event.target instanceof HTMLInputElement) return;
    event.preventDefault();  // otherwise the browser opens the image
    for (const area of [at("drop"), at("pool-drop")]) area.classList.toggle("over", kind === "dragover" || kind === "dragenter");
    if (kind !== "drop") return;
    if (event.dataTransfer.files.length) receive(event.dataTransfer.files);
    else (isLabelling() ? sayPool : tell)("", "This is not a file. Save the image first, or copy and paste it.");
  });
