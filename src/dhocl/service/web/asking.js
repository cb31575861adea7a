"use strict";
// Predict an image, and post a correction of the prediction as an observation.

const TAKEN = ["image/jpeg", "image/png", "image/webp"];
const SIDE = 2048, LARGE = 4 * 2 ** 20;  // an image with more pixels per side or more bytes is scaled down before upload
const SUGGESTED = 8;

let given = null, prediction = null, editing = null, busy = false, taught = null;  // taught: { name, rank, below }

function tell(text, problem = "") {
  at("told").textContent = text;
  at("problem").textContent = problem;
  at("problem").hidden = !problem;
}

/** Run an action and show its error, if any. Only one action runs at a time. */
async function attempt(work) {
  if (busy) return;
  busy = true;
  declined = false;
  drawPath();
  try {
    await work();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    tell("", problem.message);
  } finally {
    busy = false;
    drawPath();
  }
}

function take(file) {
  if (!file) return;
  attempt(async () => {
    tell("Predicting …");
    given = prediction = editing = taught = null;
    at("preview").hidden = true;
    given = await small(file);
    URL.revokeObjectURL(at("preview").src);
    at("preview").src = URL.createObjectURL(given);
    at("preview").hidden = false;
    editing = tree.ranks.at(-1);
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
    throw new Problem("This file can not be read as an image. Use JPEG, PNG or WebP.");
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
  const form = new FormData();
  form.append("image", given, "image");
  if (!tree.nodes.size) return tell("Nothing is learned yet: name the image.");
  [prediction] = (await ask("/predict?top=2", { method: "POST", body: form }).then(response => response.json())).predictions;
  const { name, rank, probability } = prediction.path.at(-1);
  tell(`Most probably ${name} (${rank}), ${percent(probability)}.`);
}

function teach(typed, rank) {
  const name = typed.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
  if (name) attempt(async () => {
    const form = new FormData(), isNew = !findNode(name, rank);
    const above = prediction?.path.filter(node => tree.ranks.indexOf(node.rank) < tree.ranks.indexOf(rank)).at(-1);
    form.append("image", given, "image");
    form.append("name", name);
    form.append("rank", rank);
    const { accepted: [number] } = await ask("/observations", { method: "POST", body: form }).then(response => response.json());
    editing = null;
    tell(`Accepted as number ${count(number)}. Learning …`);
    drawPath();
    await settle(number);
    taught = isNew && above ? { name, rank, below: above } : null;
    await catchUp();
    const node = findNode(name, rank);
    if (node) reveal(node);
    await predict();
    tell(`Learned that this is ${name} (${rank}). ${at("told").textContent}`);
  });
}

/** Resolves when an entry has been applied. */
async function settle(number) {
  for (let wait = 200; ; wait = Math.min(2000, 1.5 * wait)) {
    await pause(wait);
    const { state } = await read(`/entries/${number}`);
    if (state === "refused") throw new Problem("The image could not be learned.");
    if (state !== "queued") return;
  }
}

function drawPath() {
  at("path").hidden = !given;
  at("choose").disabled = busy;
  const isInside = at("path").contains(document.activeElement);
  if (given) at("path").replaceChildren(...tree.ranks.map(drawGuess));
  if (isInside) at("path").focus();  // the focused element was removed
  drawOffer();
}

function drawGuess(rank) {
  const onPath = prediction?.path.find(node => node.rank === rank), next = prediction?.alternatives[rank]?.[0], guess = onPath ?? next;
  const other = make("button", { type: "button", disabled: busy, "aria-expanded": editing === rank }, guess ? "Other" : "Name it");
  other.setAttribute("aria-label", guess ? `another ${rank}` : `name the ${rank}`);
  other.onclick = () => {
    editing = editing === rank ? null : rank;
    drawPath();
    at("path").querySelector(".other input")?.focus();
  };
  const parts = make("div", { className: "guess" }, make("span", { className: "rank" }, rank));
  const middle = make("div");
  parts.append(middle);
  if (guess) {
    const right = make("button", { type: "button", disabled: busy, onclick: () => teach(guess.name, rank) }, "Right");
    right.setAttribute("aria-label", `right, it is ${guess.name}`);
    const bar = make("div", { className: "bar" }, make("span"));
    bar.firstChild.style.width = `${100 * guess.probability}%`;
    middle.append(make("div", { className: onPath ? "name" : "name apart", dir: "auto" }, guess.name),
      make("div", { className: "share" }, bar, percent(guess.probability, 1)));
    if (!onPath) middle.append(make("div", { className: "rather" }, "most probable at this rank, not on this path"));
    else if (next) middle.append(make("div", { className: "rather" }, `or ${next.name}, ${percent(next.probability)}`));
    const note = prediction.new === rank ? `perhaps a new ${rank}` : prediction.only.includes(rank) ? `only one ${rank} known` : "";
    if (note) middle.append(make("div", { className: "rather" }, note));
    parts.append(make("div", { className: "acts" }, right, other));
  } else {
    middle.append("–");
    parts.append(make("div", { className: "acts" }, other));
  }
  return make("li", {}, parts, ...(editing === rank ? [drawOther(rank, guess)] : []));
}

/** The other classes that are nearest in the tree; all of them if the class is not linked. */
function kin(own, others) {
  for (const above of lineage(own).slice(1)) {
    const near = others.filter(node => lineage(node).includes(above));
    if (near.length) return near;
  }
  return others;
}

/** Names to choose from, relatives of the predicted class first, and a field for a new name. */
function drawOther(rank, guess) {
  const input = make("input", { type: "text", maxLength: 200, placeholder: "or a new name", autocomplete: "off", spellcheck: false, "aria-label": `the right ${rank}` });
  const send = make("button", { className: "main", disabled: true }, "Teach");
  const names = make("ul", { className: "names", "aria-label": `known names of the rank ${rank}` });
  const form = make("form", { onsubmit: event => { event.preventDefault(); teach(input.value, rank); } }, input, send);
  const own = guess && findNode(guess.name, rank);
  const suggest = () => {
    const others = namesOf(rank).filter(node => node !== own);
    const { nodes } = matches(input.value.trim() || !own ? others : kin(own, others), input.value, SUGGESTED);
    names.replaceChildren(...nodes.map(({ name }) =>
      make("li", {}, make("button", { type: "button", disabled: busy, dir: "auto", onclick: () => teach(name, rank) }, name))));
    send.disabled = busy || !input.value.trim();
    send.textContent = nodes.some(({ name }) => name === input.value.trim()) || send.disabled ? "Teach" : "Teach as new";
  };
  input.oninput = suggest;
  suggest();
  return make("div", { className: "other" }, form, names);
}

/** Offer to link a new class below the parent that was predicted for its image. */
function drawOffer() {
  const node = taught && findNode(taught.name, taught.rank);
  at("offer").hidden = !node || node.parent !== null || busy;
  if (at("offer").hidden) return;
  const { name, rank, below } = taught, [text, button] = at("offer").children;
  text.textContent = `${name} is not linked to the tree yet.`;
  button.textContent = `Put it below ${below.name}`;
  button.onclick = () => attempt(async () => {
    const link = { kind: "link", child: { name, rank }, parent: { name: below.name, rank: below.rank } };
    const headers = { "Content-Type": "application/json" };
    const { accepted } = await ask("/taxonomy", { method: "POST", headers, body: JSON.stringify(link) }).then(response => response.json());
    await settle(accepted);
    await catchUp();
    reveal(tree.nodes.get(node.id));
    tell(`${name} is below ${below.name} now.`);
  });
}

at("choose").onclick = () => at("file").click();
at("file").onchange = event => { take(event.target.files[0]); event.target.value = ""; };
document.addEventListener("paste", event => take([...event.clipboardData.files][0]));
for (const kind of ["dragenter", "dragover", "dragleave", "drop"])
  document.addEventListener(kind, event => {
    if (event.target instanceof HTMLInputElement) return;
    event.preventDefault();  // otherwise the browser opens the image
    at("drop").classList.toggle("over", kind === "dragover" || kind === "dragenter");
    if (kind !== "drop") return;
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
    else tell("", "This is not a file. Save the image first, or copy and paste it.");
  });
