"use strict";
// Post images without a label, and show them.

const TOGETHER = 6;  // images of a request
const SPLIT = [413, 415, 422];  // statuses after which the images of a request are sent one by one

const originals = new Map();  // id -> the image as it was posted on this page; the service keeps a small copy only
let adding = false;

function sayPool(text, problem = "") {
  at("pool-said").textContent = problem || text;
  at("pool-said").className = problem ? "notice" : "soft";
}

/** Post the images. Those that are refused are counted, and the first reason is shown. */
async function addImages(files) {
  if (adding || !files.length) return;
  adding = at("pool-choose").disabled = true;
  declined = false;
  let added = 0;
  const refused = [];
  try {
    for (let start = 0; start < files.length; start += TOGETHER) {
      sayPool(`Adding images: ${count(start)} of ${count(files.length)} …`);
      added += await addSome(files.slice(start, start + TOGETHER), refused);
      if (!subject) await attempt(next, sayLabel);
    }
    const lost = refused.length ? ` ${count(refused.length)} refused. ${refused[0]}` : "";
    const text = `${added === 1 ? "1 image" : `${count(added)} images`} added.${lost}`;
    sayPool(text, lost && text);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    sayPool("", `${count(added)} of ${count(files.length)} images added. ${problem.message}`);
  } finally {
    adding = at("pool-choose").disabled = false;
    soonRenew();
  }
}

/** Number of images that were accepted. */
async function addSome(files, refused) {
  try {
    const images = await Promise.all(files.map(small)), form = new FormData();
    for (const image of images) form.append("image", image, "image");
    const found = await ask("/images", { method: "POST", body: form }).then(response => response.json()), { accepted } = found;
    pool = found.pool;
    drawLabelling();
    accepted.forEach((id, place) => originals.set(id, images[place]));
    return accepted.length;
  } catch (problem) {
    if (!SPLIT.includes(problem.status)) throw problem;
    if (files.length === 1) {
      refused.push(`${files[0].name}: ${problem.message}`);
      return 0;
    }
  }
  let added = 0;
  for (const file of files) added += await addSome([file], refused);
  return added;
}

const shownBlobs = new Map();  // id -> promise of a blob

/** The image as posted here, else the copy of the service, which is small. */
function blobOf({ id, thumbnail }) {
  if (!shownBlobs.has(id))
    shownBlobs.set(id, originals.has(id) ? Promise.resolve(originals.get(id)) : ask(thumbnail).then(response => response.blob()));
  return shownBlobs.get(id);
}

at("pool-choose").onclick = () => at("pool-files").click();
at("pool-files").onchange = event => { addImages([...event.target.files]); event.target.value = ""; };
