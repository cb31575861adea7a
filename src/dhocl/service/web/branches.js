"use strict";
// The tree on the page. Only visible rows are elements, so thousands of classes stay fast.

const MATCHES = 200;  // largest number of search results
const FIRST = 40;  // the tree is expanded initially up to this number of rows

const unfolded = new Set();
const met = new Set();  // parents that have been listed before
let shown = [], active = null, query = "", hits = null;  // hits: id of a match or an ancestor of one -> whether it matches

/** All rows, visible or not: { node, depth, place, of }. */
function listRows() {
  const rows = [];
  const walk = (nodes, depth) => {
    const kept = hits ? nodes.filter(node => hits.has(node.id)) : nodes;
    kept.forEach((node, place) => {
      rows.push({ node, depth, place: place + 1, of: kept.length });
      if (isOpen(node)) walk(childrenOf(node.id), depth + 1);
    });
  };
  walk(childrenOf(null), 0);
  return rows;
}

const isOpen = node => hits ? hits.has(node.id) && childrenOf(node.id).some(child => hits.has(child.id)) : unfolded.has(node.id);

function findHits() {
  const { total, nodes } = matches([...tree.nodes.values()], query, MATCHES);
  hits = new Map(nodes.flatMap(node => lineage(node).slice(1)).map(node => [node.id, false]));
  nodes.forEach(node => hits.set(node.id, true));
  const first = total > nodes.length ? `, the first ${nodes.length} are shown` : "";
  at("found").textContent = `${count(total)} of ${count(tree.nodes.size)} classes${first}`;
}

function drawTree() {
  for (const [id, since] of tree.fresh)
    if (Date.now() - since >= FRESH) {
      tree.fresh.delete(id);
      tidy = null;
    }
  if (query) findHits();
  else hits = null;
  at("found").hidden = !query;
  at("empty").hidden = tree.nodes.size > 0;
  at("tree").hidden = !tree.nodes.size;
  unfoldFirst();
  drawRows();
  tellLine();
}

function drawRows() {
  const frame = at("tree"), rows = at("rows"), height = rowHeight();
  const first = Math.max(0, Math.floor(frame.scrollTop / height) - 5);
  const last = Math.min(shown.length, Math.ceil((frame.scrollTop + (frame.clientHeight || 600)) / height) + 5);
  place(rows, shown.slice(first, last).map(drawRow));
  rows.style.paddingTop = `${first * height}px`;
  rows.style.paddingBottom = `${Math.max(0, shown.length - last) * height}px`;
  if (at(`node-${active}`)) frame.setAttribute("aria-activedescendant", `node-${active}`);
  else frame.removeAttribute("aria-activedescendant");
}

const rowHeight = () => at("rows").firstElementChild?.offsetHeight || 32;

/** Set the children of an element. Existing ones are not replaced, because one may be pressed. */
function place(element, wanted) {
  const kept = new Set(wanted);
  for (const child of [...element.children]) if (!kept.has(child)) child.remove();
  let spot = element.firstElementChild;
  for (const child of wanted) {
    if (child === spot) spot = spot.nextElementSibling;
    else element.insertBefore(child, spot);
  }
}

function drawRow({ node, depth, place, of }) {
  const row = at(`node-${node.id}`) ?? makeRow(node);
  const [twist, mark, name, small, badge] = row.children;
  const below = derived().below.get(node.id) ?? 0, grown = derived().grown.get(node.id) ?? 0;
  const open = isOpen(node), fresh = isFresh(node), loose = isLoose(node);
  const attributes = { "aria-level": depth + 1, "aria-posinset": place, "aria-setsize": of, "aria-selected": node.id === active };
  for (const [key, value] of Object.entries(attributes)) row.setAttribute(key, value);
  if (below) row.setAttribute("aria-expanded", open);
  else row.removeAttribute("aria-expanded");
  if (fresh && !row.classList.contains("new"))
    row.style.animationDelay = `${tree.fresh.get(node.id) - Date.now()}ms`;  // a row that is scrolled into view continues its fade
  row.classList.toggle("new", fresh);
  row.classList.toggle("loose", loose);
  row.classList.toggle("active", node.id === active);
  row.style.paddingLeft = `${.3 + 1.1 * Math.min(depth, 12)}rem`;
  twist.textContent = below ? "▸" : "";
  mark.hidden = !loose;
  row.title = name.textContent = node.name;
  name.classList.toggle("hit", Boolean(hits?.get(node.id)));
  const rank = !depth || node.rank !== tree.ranks[depth] ? node.rank : "";
  small.textContent = [rank, below ? count(below) : ""].filter(Boolean).join(" · ");
  badge.textContent = grown && !open ? `${grown} new` : "";
  return row;
}

const makeRow = node => make("div", { id: `node-${node.id}`, className: "row", role: "treeitem", draggable: !isReplica },
  make("span", { className: "twist", "aria-hidden": "true" }), make("span", { className: "mark hollow", "aria-hidden": "true" }),
  make("span", { className: "name", dir: "auto" }), make("small"), make("span", { className: "grown" }));

function tellLine() {
  const node = tree.nodes.get(active);
  drawEditing();
  if (!node) return;
  const line = lineage(node).map(above => `${above.name} (${above.rank})`).join(" ‹ ");
  const text = isLoose(node) ? `${line}: not linked to the tree yet` : line;
  if (at("line").textContent !== text) at("line").textContent = text;
}

/** Move the cursor to a class and scroll to it. */
function activate(id) {
  active = id;
  const place = Math.max(0, shown.findIndex(row => row.node.id === id)), frame = at("tree"), height = rowHeight();
  if (place * height < frame.scrollTop) frame.scrollTop = place * height;
  if ((place + 1) * height > frame.scrollTop + frame.clientHeight) frame.scrollTop = (place + 1) * height - frame.clientHeight;
  drawTree();
}

function toggle(node, open = !unfolded.has(node.id)) {
  if (open) unfolded.add(node.id);
  else unfolded.delete(node.id);
}

/** Expand the ancestors of a class and scroll to it. */
function reveal(node) {
  lineage(node).slice(1).forEach(above => unfolded.add(above.id));
  query = at("search").value = "";
  drawTree();
  activate(node.id);
}

/** List the rows. New parents are expanded while there are few rows. */
function unfoldFirst() {
  shown = listRows();
  const parents = hits ? [] : shown.map(({ node }) => node).filter(({ id }) => !met.has(id) && childrenOf(id).length);
  let rows = shown.length;
  for (const { id } of parents) {
    met.add(id);
    if (rows + childrenOf(id).length > FIRST) continue;
    rows += childrenOf(id).length;
    unfolded.add(id);
  }
  if (rows > shown.length) unfoldFirst();
}

function onKey(event) {
  const place = shown.findIndex(row => row.node.id === active), row = shown[place];
  const page = Math.max(1, Math.floor(at("tree").clientHeight / rowHeight()) - 1);
  const go = where => shown[Math.min(shown.length - 1, Math.max(0, where))]?.node.id ?? null;
  const isParent = row && childrenOf(row.node.id).length > 0;
  const moves = {
    ArrowDown: () => go(place + 1), ArrowUp: () => go(place - 1), Home: () => go(0), End: () => go(shown.length - 1),
    PageDown: () => go(place + page), PageUp: () => go(place - page),
    ArrowRight: () => (isParent && isOpen(row.node) ? go(place + 1) : (isParent && toggle(row.node, true), active)),
    ArrowLeft: () => (isParent && isOpen(row.node) && !hits ? (toggle(row.node, false), active) : row?.node.parent ?? active),
    Enter: () => (isParent && toggle(row.node), active), " ": () => (isParent && toggle(row.node), active),
  };
  if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  activate(moves[event.key]());
}

at("tree").onkeydown = onKey;
at("tree").onfocus = () => { if (active === null && shown.length && at("tree").matches(":focus-visible")) activate(shown[0].node.id); };
at("tree").onscroll = drawRows;
at("rows").onclick = event => {
  const row = event.target.closest(".row"), node = row && tree.nodes.get(Number(row.id.slice(5)));
  if (!node) return;
  if (childrenOf(node.id).length) toggle(node);
  activate(node.id);
};
at("search").oninput = () => { query = at("search").value.trim(); at("tree").scrollTop = 0; drawTree(); };
at("unfold").onclick = () => { for (const id of derived().children.keys()) unfolded.add(id); drawTree(); };
at("fold").onclick = () => { unfolded.clear(); at("tree").scrollTop = 0; drawTree(); };
new ResizeObserver(() => requestAnimationFrame(drawRows)).observe(at("tree"));
