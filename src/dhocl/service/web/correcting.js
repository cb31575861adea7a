"use strict";
// Give a recent observation another name, or delete it.

const ERASING = 60;  // seconds for which the erasure of an image is watched

let opened = null;  // number of the observation whose form is open

function sayCorrected(text, problem = "") {
  at("corrected").textContent = problem || text;
  at("corrected").className = problem ? "notice" : "soft";
}

/** The buttons of an observation. One that was refused has no label to correct. */
function drawCorrecting({ number, name, state }) {
  const other = make("button", { type: "button", "aria-expanded": opened === number, onclick: () => busy || openCorrection(opened === number ? null : number) }, "Another name");
  const gone = make("button", { type: "button", onclick: () => askDelete(number, name) }, "Delete");
  other.setAttribute("aria-label", `another name for ${name}, number ${number}`);
  gone.setAttribute("aria-label", `delete ${name}, number ${number}`);
  return make("div", { className: "acts" }, ...(state === "refused" ? [] : [other]), gone);
}

function openCorrection(number) {
  const before = opened;
  opened = number;
  drawRecent();
  const inside = number === null ? at(`observation-${before}`)?.querySelector(".acts button") : at(`observation-${number}`).querySelector("input");
  (inside ?? at("recent-title")).focus();
}

function drawCorrection({ number, name, rank }) {
  const box = nameForm({ rank, ranks: tree.ranks, guess: { name }, verb: "Correct", give: (to, at) => relabel(number, name, { name: to, rank: at }) });
  box.addEventListener("keydown", event => { if (event.key === "Escape") openCorrection(null); });
  return box;
}

const correct = work => attempt(async () => { sayCorrected("Correcting …"); sayCorrected(await work()); }, sayCorrected);

/** Post a correction and wait until it is applied. Returns its number. */
async function postCorrection(number, options) {
  const { accepted } = await ask(`/observations/${number}`, options).then(response => response.json());
  await settle(accepted);
  return accepted;
}

function relabel(number, before, label) {
  correct(async () => {
    const body = JSON.stringify(label), headers = { "Content-Type": "application/json" };
    await postCorrection(number, { method: "PATCH", headers, body });
    openCorrection(null);
    await catchUp();
    await loadRecent();
    drawRecent();
    return `Corrected: number ${count(number)} is ${label.name} (${label.rank}), not ${before}.`;
  });
}

/** A deletion has no inverse, so it is confirmed. `work` deletes. */
function confirmErasure(title, why, work) {
  const before = document.activeElement, dialog = at("erase");
  at("erase-title").textContent = title;
  at("erase-why").textContent = why;
  at("erase-yes").onclick = () => { dialog.close(); work(); };
  dialog.onclose = () => before?.focus();
  dialog.showModal();
  at("erase-no").focus();
}

function askDelete(number, name) {
  confirmErasure(`Delete ${name}, number ${count(number)}?`,
    "The model forgets the observation, as far as its method can. The image is erased from the disk. This can not be undone.",
    () => correct(async () => {
      const entry = await postCorrection(number, { method: "DELETE" });
      if (opened === number) opened = null;
      await loadRecent();
      drawRecent();
      at("recent-title").focus();  // the button that had the focus is gone
      sayErased(entry, number);
      return `Deleted: ${name}, number ${count(number)}. Erasing the image …`;
    }));
}

/** Say when the image is off the disk, unless something else was said since. */
async function sayErased(entry, number) {
  const text = `number ${count(number)}. `;
  for (let second = 0; second < ERASING; second++) {
    await pause(1000);
    if (!at("corrected").textContent.includes(text)) return;
    if (!(await read(`/entries/${entry}`).catch(() => ({}))).erased) continue;
    return sayCorrected(at("corrected").textContent.replace("Erasing the image …", "Its image is erased from the disk."));
  }
}

/** A correction that was applied, made here or elsewhere. */
function hearCorrection({ of, kind, state }) {
  if (state === "done" && recent.some(({ number }) => number === of)) soonReload();
  if (state === "done" && kind === "delete" && opened === of) opened = null;
}

const soonReload = calm(() => loadRecent().then(drawRecent).catch(() => {}), 1000);

at("erase-no").onclick = () => at("erase").close();
