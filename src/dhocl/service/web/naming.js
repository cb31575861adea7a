"use strict";
// The form that names an image: known names, relatives of a class first, or a new one.

const SUGGESTED = 8;

const tidyName = typed => typed.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");

/** The other classes that are nearest in the tree; all of them if the class is not linked. */
function kin(own, others) {
  for (const above of lineage(own).slice(1)) {
    const near = others.filter(node => lineage(node).includes(above));
    if (near.length) return near;
  }
  return others;
}

/** A form that calls `give(name, rank)`.
 *  verb: text of its button;
 *  guess: the class { name } that it is not, if there is one;
 *  ranks: ranks to choose from; without them only `rank`. */
function nameForm({ rank, verb, give, guess = null, ranks = null }) {
  const input = make("input", { type: "text", maxLength: 200, placeholder: "or a new name", autocomplete: "off", spellcheck: false });
  const send = make("button", { className: "main", disabled: true }, verb);
  const names = make("ul", { className: "names" });
  const choice = ranks && make("select", { "aria-label": "rank of the name" }, ...ranks.map(each => make("option", { value: each, selected: each === rank }, each)));
  const rankNow = () => choice ? choice.value : rank;
  const suggest = () => {
    const own = guess && findNode(guess.name, rankNow());
    const others = namesOf(rankNow()).filter(node => node !== own);
    const { nodes } = matches(input.value.trim() || !own ? others : kin(own, others), input.value, SUGGESTED);
    names.replaceChildren(...nodes.map(({ name }) =>
      make("li", {}, make("button", { type: "button", dir: "auto", onclick: () => give(name, rankNow()) }, name))));
    input.setAttribute("aria-label", `the right ${rankNow()}`);
    names.setAttribute("aria-label", `known names of the rank ${rankNow()}`);
    send.disabled = !input.value.trim();
    send.textContent = findNode(tidyName(input.value), rankNow()) || send.disabled ? verb : `${verb} as new`;
  };
  const submit = event => {
    event.preventDefault();
    const name = tidyName(input.value);
    if (name) give(name, rankNow());
  };
  const form = make("form", { onsubmit: submit }, ...(choice ? [choice] : []), input, send);
  input.oninput = suggest;
  if (choice) choice.onchange = suggest;
  suggest();
  const box = make("div", { className: "other" }, form, names);
  box.onkeydown = event => moveAmongNames(event, input, names);
  return box;
}

/** Arrow keys go from the field to the names and between them. */
function moveAmongNames(event, input, names) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], line = [input, ...names.querySelectorAll("button")];
  const from = line.indexOf(event.target);
  if (!step || from < 0) return;
  event.preventDefault();
  line[Math.min(line.length - 1, Math.max(0, from + step))].focus();
}
