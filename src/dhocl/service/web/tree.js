"use strict";
// A copy of the tree, updated by events.

const FRESH = 20_000;  // milliseconds for which a class is marked as new

const tree = { ranks: [], version: -1, nodes: new Map(), fresh: new Map() };  // fresh: id -> time of its last change
const order = new Intl.Collator(undefined, { numeric: true });
const plain = text => text.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase();
let tidy = null;  // derived from the nodes; null after a change

function addNode({ id, name, rank, parent = null }) {
  tree.nodes.set(id, { id, name, rank, parent, plain: plain(name) });
}

async function loadTree() {
  const { ranks, version, nodes } = await read("/taxonomy");
  tree.nodes.clear();
  nodes.forEach(addNode);
  Object.assign(tree, { ranks, version });
  tidy = null;
}

/** Apply events. Events that were applied before are ignored. */
function applyEvents(events) {
  const now = Date.now();
  for (const event of events) {
    if (event.number <= tree.version) continue;
    const node = tree.nodes.get(event.node);
    if (event.kind === "add") addNode({ id: event.node, name: event.name, rank: event.rank });
    if (event.kind === "rename") Object.assign(node, { name: event.name, plain: plain(event.name) });
    if (event.kind === "add" || (event.kind === "link" && node.parent === null)) tree.fresh.set(event.node, now);
    if (event.kind === "link") node.parent = event.parent;
    if (event.kind === "unlink") node.parent = null;
    if (event.kind === "merge") tree.nodes.delete(event.node);
    tree.version = event.number;
  }
  tidy = null;
}

/** Request events since the current version, or the whole tree if the service has an earlier version. */
async function catchUp() {
  if (tree.version < 0) return loadTree();
  const { version, events } = await read(`/taxonomy/events?since=${tree.version}`);
  if (version < tree.version) return loadTree();
  applyEvents(events);
}

function hearTree({ events }) {
  if (events.length && events[0].number > tree.version + 1) return catchUp();
  applyEvents(events);
}

/** Children by parent (null for roots) in display order, with counts of descendants and of new ones. */
function derived() {
  if (tidy) return tidy;
  const children = new Map([[null, []]]), below = new Map(), grown = new Map();
  for (const node of tree.nodes.values()) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  tidy = { children, below, grown };
  for (const list of children.values()) list.sort((a, b) => order.compare(a.name, b.name));
  children.get(null).sort((a, b) => isLoose(a) - isLoose(b) || order.compare(a.name, b.name));
  for (const node of tree.nodes.values())
    for (const above of lineage(node).slice(1)) {
      below.set(above.id, (below.get(above.id) ?? 0) + 1);
      if (isFresh(node)) grown.set(above.id, (grown.get(above.id) ?? 0) + 1);
    }
  return tidy;
}

const childrenOf = id => derived().children.get(id) ?? [];
const isFresh = node => Date.now() - (tree.fresh.get(node.id) ?? 0) < FRESH;

/** Unanchored: neither parent nor child, and not of the coarsest rank. */
const isLoose = node => node.parent === null && node.rank !== tree.ranks[0] && !childrenOf(node.id).length;

/** The node and its ancestors. */
function lineage(node) {
  const line = [];
  for (let up = node; up; up = tree.nodes.get(up.parent)) line.push(up);
  return line;
}

const namesOf = rank => [...tree.nodes.values()].filter(node => node.rank === rank);
const findNode = (name, rank) => namesOf(rank).find(node => node.name === name);

/** Classes whose names contain the query; names that start with it first. */
function matches(nodes, query, most) {
  const words = plain(query).split(/\s+/).filter(Boolean);
  const found = nodes.filter(node => words.every(word => node.plain.includes(word)));
  const late = node => !node.plain.startsWith(words[0] ?? "");
  return { total: found.length, nodes: found.sort((a, b) => late(a) - late(b) || order.compare(a.name, b.name)).slice(0, most) };
}
