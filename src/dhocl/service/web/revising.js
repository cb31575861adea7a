"use strict";
// Changes of the tree: each is a revision posted to the service, and has an inverse, except a merge.

const KEPT_CHANGES = 50;
const changes = [];  // made on this page, newest last: { text, isCurrent, undo }

const label = ({ name, rank }) => ({ name, rank });
const mayBeBelow = (node, parent) => depth(parent.rank) < depth(node.rank) && parent.id !== node.parent;
const mayBecome = (node, other) => other.id !== node.id && other.rank === node.rank;

/** Post a revision and wait until it is applied. */
async function revise(revision) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(revision) };
  const { accepted } = await ask("/taxonomy", options).then(response => response.json());
  await settle(accepted);
  await catchUp();
}

/** Show a class that was changed. */
function showChanged({ id }) {
  const node = tree.nodes.get(id);
  if (node) reveal(node);
  else drawTree();
}

function remember(change) {
  changes.push(change);
  if (changes.length > KEPT_CHANGES) changes.shift();
}

/** Link a class to a parent, or remove its link if that is null. */
async function setParent(node, parent) {
  await revise(parent ? { kind: "link", child: label(node), parent: label(parent) } : { kind: "unlink", child: label(node) });
  showChanged(node);
}

async function move(node, parent) {
  const { id, name, parent: before } = node, after = parent?.id ?? null;
  await setParent(node, parent);
  remember({
    text: parent ? `${name} below ${parent.name}` : `${name} without a parent`,
    isCurrent: () => tree.nodes.get(id)?.parent === after && (before === null || tree.nodes.has(before)),
    undo: () => setParent(tree.nodes.get(id), tree.nodes.get(before) ?? null),
  });
}

async function rename(node, to) {
  const { id, name: before } = node;
  await revise({ kind: "rename", class: label(node), to });
  showChanged(node);
  const after = tree.nodes.get(id)?.name;  // the service normalises names
  remember({
    text: `${before} renamed ${after}`,
    isCurrent: () => tree.nodes.get(id)?.name === after,
    undo: async () => {
      await revise({ kind: "rename", class: label(tree.nodes.get(id)), to: before });
      showChanged(node);
    },
  });
}

/** What is lost, for the question before. */
function mergeWarning(node, into) {
  const below = childrenOf(node.id).length;
  const moved = below ? ` ${below === 1 ? "The class below it moves" : `The ${count(below)} classes below it move`} to ${into.name}.` : "";
  return `${node.name} becomes another name of ${into.name}.${moved} This can not be undone, and neither can the changes made before it.`;
}

async function merge(node, into) {
  await revise({ kind: "merge", class: label(node), into: into.name });
  changes.length = 0;  // an earlier change may concern the class that is gone
  showChanged(into);
}

/** Undo the newest change, unless the class was changed elsewhere since. Returns what to say. */
async function undoLast() {
  const change = changes.pop();
  if (!change.isCurrent()) throw new Problem(`Not undone: “${change.text}” was changed again since, elsewhere.`);
  await change.undo();
  return `Undone: ${change.text}.`;
}
