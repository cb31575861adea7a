"use strict";
// What a prediction says, and what follows from what was taught. Only `readPrediction` knows the JSON of /predict.

const SURE = .8;  // least probability of a class in the headline

/** {
 *    path: [{ rank, name, probability }], coarsest first;
 *    next: rank -> the next best class { name, probability }, or the best one where the path has none;
 *    sure: the deepest node of the path that is sure, or null;
 *    notes: rank -> what to know about it
 *  } */
function readPrediction({ path, answer, alternatives, new: unknown, only }) {
  const next = Object.fromEntries(Object.entries(alternatives).map(([rank, [first]]) => [rank, first]));
  const notes = Object.fromEntries(only.map(rank => [rank, `only one ${rank} known`]));
  if (unknown) notes[unknown] = `perhaps a new ${unknown}`;
  return { path, next, sure: answer, notes };
}

const predictOne = image => {
  const form = new FormData();
  form.append("image", image, "image");
  return ask(`/predict?top=2&confidence=${SURE}`, { method: "POST", body: form })
    .then(response => response.json()).then(({ predictions }) => readPrediction(predictions[0]));
};

const depth = rank => tree.ranks.indexOf(rank);

/** Of two classes taught for one image the later one, or the earlier one if that is below it: { name, rank }. */
function finest(earlier, later) {
  const node = earlier && findNode(earlier.name, earlier.rank);
  return node && lineage(node).some(({ name, rank }) => name === later.name && rank === later.rank) ? earlier : later;
}

/** Names by rank that follow from the class that was taught: its own and those of its ancestors. */
function truthOf(truth) {
  const node = truth && findNode(truth.name, truth.rank);
  return new Map(node ? lineage(node).map(({ rank, name }) => [rank, name]) : truth ? [[truth.rank, truth.name]] : []);
}

/** Whether a predicted path agrees with what was taught. */
const agrees = ({ path }, known) => path.every(({ rank, name }) => !known.has(rank) || known.get(rank) === name);

/** The headline: { name, about }. The deepest class that is sure; never coarser than, or beside, what was taught. */
function headline(prediction, truth) {
  const known = truthOf(truth), { path, sure } = prediction;
  const own = truth && path.find(({ rank }) => rank === truth.rank);
  if (truth && !agrees(prediction, known)) {
    const wrong = path.find(({ rank, name }) => known.has(rank) && known.get(rank) !== name);
    return { name: truth.name, about: `${truth.rank}, as you taught. The model still predicts ${wrong.name}, ${percent(wrong.probability)}.` };
  }
  if (truth && (!sure || depth(sure.rank) <= depth(truth.rank)))
    return { name: truth.name, about: [`${truth.rank}, as you taught`, own && `predicted with ${percent(own.probability)}`].filter(Boolean).join("; ") + unsure(path, truth.rank) };
  if (sure) return { name: sure.name, about: `${sure.rank}, ${percent(sure.probability)}${unsure(path, sure.rank)}` };
  return { name: "Not sure", about: `perhaps ${path[0].name} (${path[0].rank}), ${percent(path[0].probability)}` };
}

/** About the next finer rank of the path, which is not sure. */
function unsure(path, rank) {
  const next = path.find(node => depth(node.rank) > depth(rank));
  return next ? `. ${next.rank} unsure: perhaps ${next.name}, ${percent(next.probability)}` : "";
}
