"use strict";
// Rename, move, merge and undo in the tree: by buttons, by keys of the tree, and by dragging a class onto another.

const CHOICES = 8;  // classes offered as targets
const KEYS = { F2: "rename", m: "move", M: "move", g: "merge", G: "merge", Delete: "unlink" };

let changing = null, dragged = null;  // "rename", "move" or "merge" while its form is open; the class that is dragged

function say(text, problem = "") {
  at("edited").textContent = problem || text;
  at("edited").className = problem ? "notice" : "soft";
}

const edit = work => attempt(async () => { say("Changing the tree …"); say(await work()); }, say);

const takes = (kind, node) => other => (kind === "move" ? mayBeBelow : mayBecome)(node, other);
const targets = (node, kind) => [...tree.nodes.values()].filter(takes(kind, node));
const hasTarget = (node, kind) => [...tree.nodes.values()].some(takes(kind, node));

/** The buttons of the chosen class. */
function drawEditing() {
  const node = tree.nodes.get(active), last = changes.at(-1);
  at("edit").hidden = !node && !last && !at("edited").textContent;
  for (const [id, may] of Object.entries({
    "edit-rename": node, "edit-move": node && hasTarget(node, "move"), "edit-merge": node && hasTarget(node, "merge"),
    "edit-unlink": node && node.parent !== null, "edit-undo": last,
  })) at(id).disabled = busy || !may;
  at("edit-undo").setAttribute("aria-label", last ? `Undo: ${last.text}` : "Undo");
  at("edit-undo").title = last ? `Undo: ${last.text} (Ctrl+Z)` : "";
  if (changing && (!node || busy)) closeForm();
}

function closeForm() {
  const hadFocus = at("change").contains(document.activeElement);
  changing = null;
  at("change").replaceChildren();
  if (hadFocus) at("tree").focus();
}

/** Open the form of a change of the chosen class. */
function openForm(kind) {
  const node = tree.nodes.get(active);
  if (!node || busy || (kind !== "rename" && !hasTarget(node, kind))) return;
  changing = kind;
  const title = { rename: `New name of ${node.name}`, move: `Put ${node.name} below`, merge: `Merge ${node.name} into` }[kind];
  const input = make("input", { type: "text", maxLength: 200, value: kind === "rename" ? node.name : "", autocomplete: "off", spellcheck: false, "aria-label": title });
  const names = make("ul", { className: "names", "aria-label": "classes to choose from" });
  const found = () => kind === "rename" ? [] : matches(targets(node, kind), input.value, CHOICES).nodes;
  const choose = other => kind === "move" ? edit(() => moved(node, other)) : askMerge(node, other);
  input.oninput = () => names.replaceChildren(...found().map(other =>
    make("li", {}, make("button", { type: "button", dir: "auto", onclick: () => choose(other) }, other.name, " ", make("small", {}, other.rank)))));
  const submit = event => {
    event.preventDefault();
    const name = input.value.trim();
    if (kind !== "rename") return found().length ? choose(found()[0]) : say("", `No class that fits is called “${name}”.`);
    if (name && name !== node.name) edit(() => renamed(node, name));
    else closeForm();
  };
  const cancel = make("button", { type: "button", onclick: closeForm }, "Cancel");
  const form = make("form", { onsubmit: submit }, input, make("button", { className: "main" }, { rename: "Rename", move: "Move", merge: "Merge" }[kind]), cancel);
  at("change").replaceChildren(make("div", { className: "other" }, make("p", { className: "soft" }, title), form, names));
  input.oninput();
  input.focus();
  input.select();
}

async function moved(node, parent) {
  await move(node, parent);
  return parent ? `${node.name} is below ${parent.name} now.` : `${node.name} has no parent now.`;
}

async function renamed(node, name) {
  const before = node.name;
  await rename(node, name);
  return `${before} is called ${tree.nodes.get(node.id)?.name ?? name} now.`;
}

/** A merge has no inverse, so it is confirmed. */
function askMerge(node, into) {
  closeForm();
  at("merge-why").textContent = mergeWarning(node, into);
  at("merge-yes").onclick = () => {
    at("merge").close();
    edit(async () => { await merge(node, into); return `${node.name} and ${into.name} are one class now.`; });
  };
  at("merge").showModal();
}

const undo = () => { if (changes.length && !isReplica) edit(undoLast); };

function change(kind) {
  if (isReplica) return;
  const node = tree.nodes.get(active);
  if (kind === "unlink") { if (node && node.parent !== null) edit(() => moved(node, null)); }
  else openForm(kind);
}

for (const kind of ["rename", "move", "merge", "unlink"]) at(`edit-${kind}`).onclick = () => change(kind);
at("edit-undo").onclick = undo;
at("merge-no").onclick = () => at("merge").close();
at("merge").onclose = () => at("tree").focus();
at("change").onkeydown = event => { if (event.key === "Escape") closeForm(); };
at("tree").addEventListener("keydown", event => {
  const isUndo = event.key === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey;
  if (!isUndo && (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey)) return;
  event.preventDefault();
  if (isUndo) undo();
  else change(KEYS[event.key]);
});

// -- dragging: onto a class of a coarser rank moves, onto one of the same rank merges -------------------------------------

const nodeOf = target => tree.nodes.get(Number(target.closest?.("#tree .row")?.id.slice(5)));
const fits = node => dragged && node && (mayBeBelow(dragged, node) || mayBecome(dragged, node));
const aim = row => { for (const other of at("rows").children) other.classList.toggle("aim", other === row); };

at("rows").addEventListener("dragstart", event => {
  dragged = busy ? null : nodeOf(event.target);
  if (!dragged) return event.preventDefault();
  event.dataTransfer.setData("text/plain", dragged.name);
  event.dataTransfer.effectAllowed = "move";
});
at("rows").addEventListener("dragend", () => { dragged = null; aim(null); });
for (const kind of ["dragenter", "dragover", "dragleave", "drop"])
  at("tree").addEventListener(kind, event => {
    if (!dragged) return;  // an image: see asking.js
    event.stopPropagation();
    const node = nodeOf(event.target), source = dragged;
    aim(kind !== "drop" && fits(node) ? event.target.closest(".row") : null);
    if (!fits(node)) return;
    event.preventDefault();
    if (kind !== "drop") return;
    dragged = null;
    if (mayBeBelow(source, node)) edit(() => moved(source, node));
    else askMerge(source, node);
  });
