"use strict";
// What can be done with an image without a label: label, skip, remove, and undo.

const GONE = [404, 410];  // statuses of what was labelled, removed or deleted elsewhere

const deeds = [];  // what can be undone, newest last: { suggestion, number of the observation, or null if skipped }

/** Label the image that is shown. It is learned in turn; the next one is shown at once. */
function give(name, rank) {
  const suggestion = subject;
  if (suggestion) act(suggestion, async () => {
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name, rank }) };
    const { accepted } = await ask(`/images/${suggestion.id}/label`, options).then(response => response.json());
    deeds.push({ suggestion, number: accepted, name });
    leave(suggestion, `Labelled: ${name} (${rank}).`);
    await next();
  });
}

/** Run an action on an image. If the image has left the pool, the next one is shown. */
function act(suggestion, work) {
  attempt(async () => {
    try {
      await work();
    } catch (problem) {
      if (!GONE.includes(problem.status)) throw problem;
      leave(suggestion, "");
      await next();
      throw problem;
    }
  }, sayLabel);
}

/** It is no longer among the images without a label. */
function leave({ id }, text) {
  finished.add(id);
  shownBlobs.delete(id);
  pool = Math.max(0, pool - 1);
  sayLabel(text);
}

function skip() {
  const suggestion = subject;
  if (suggestion) attempt(async () => {
    skipped.add(suggestion.id);
    deeds.push({ suggestion, number: null });
    sayLabel("Skipped.");
    await next();
  }, sayLabel);
}

/** Undo the last label or skip: its image is shown again. A label is forgotten by the model. */
function undoLabel() {
  const deed = deeds.at(-1);
  if (deed) attempt(async () => {
    let { suggestion, number, name } = deed;
    if (number !== null) {
      sayLabel(`Taking back ${name} …`);
      suggestion = { ...suggestion, ...await unlabel(number, suggestion.id) };
      pool += 1;
    }
    deeds.splice(deeds.indexOf(deed), 1);
    skipped.delete(suggestion.id);
    if (subject && subject.id !== suggestion.id) ahead.unshift(subject);
    present(suggestion);
    sayLabel(number === null ? "Back to the image that was skipped." : `Taken back: ${name}. The image is without a label again.`);
  }, sayLabel);
}

/** The image's new { id, thumbnail } in the pool. If the model can not forget it, the label stays. */
async function unlabel(number, before) {
  const { accepted, id } = await ask(`/observations/${number}/unlabel`, { method: "POST" }).then(response => response.json()).catch(problem => {
    if (GONE.includes(problem.status)) deeds.pop();  // deleted elsewhere: the next undo is about an earlier image
    throw problem;
  });
  try {
    await settle(accepted);
  } catch (problem) {
    await ask(`/images/${id}`, { method: "DELETE" }).catch(() => {});
    throw problem;
  }
  if (originals.has(before)) originals.set(id, originals.get(before));
  originals.delete(before);
  return { id, thumbnail: `/images/${id}/thumbnail` };
}

function askRemove() {
  const suggestion = subject;
  if (suggestion && !busy) confirmErasure("Remove this image?", "It is erased from the disk. It has no label, so nothing is forgotten. This can not be undone.",
    () => act(suggestion, async () => {
      await ask(`/images/${suggestion.id}`, { method: "DELETE" });
      leave(suggestion, "Removed: the image is erased from the disk.");
      originals.delete(suggestion.id);
      await next();
    }));
}
