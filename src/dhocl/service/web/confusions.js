"use strict";
// Which classes are taken for which, at the rank that is chosen.

const PAIRS = 8;  // shown

let confusions = {}, asOf = "", chosenRank = null;  // asOf: state of the service that they belong to

async function loadConfusions() {
  const now = `${numbers?.learned} ${tree.version}`;
  if (now === asOf) return;
  confusions = await read(`/confusions?n=${PAIRS}`);
  asOf = now;
}

function drawConfusions() {
  const some = tree.ranks.filter(rank => confusions[rank]?.length);
  const rank = some.includes(chosenRank) ? chosenRank : some.at(-1);
  at("confused-ranks").replaceChildren(...some.map(each => {
    const button = make("button", { type: "button", "aria-pressed": each === rank }, each);
    button.onclick = () => {
      chosenRank = each;
      drawConfusions();
      at("confused-ranks").querySelector("[aria-pressed=true]").focus();
    };
    return button;
  }));
  const pairs = confusions[rank] ?? [], most = pairs[0]?.count ?? 1;
  at("confused").replaceChildren(...pairs.map(pair => drawPair(pair, rank, most)));
  at("confused-table").hidden = !pairs.length;
  at("unconfused").hidden = pairs.length > 0;
}

function drawPair({ true: own, predicted, count: times }, rank, most) {
  const bar = make("div", { className: "bar" }, make("span"));
  bar.firstChild.style.width = `${100 * times / most}%`;
  const name = text => make("button", { type: "button", className: "plain", dir: "auto", onclick: () => { const node = findNode(text, rank); if (node) reveal(node); } }, text);
  return make("tr", {}, make("td", {}, name(own)), make("td", {}, name(predicted)), make("td", { className: "number" }, count(times), bar));
}
