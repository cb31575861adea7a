"use strict";
// Why: stored examples of a predicted class that look most like the image.

const SHOWN_EXAMPLES = 4;

/** Show them in an area once they are there, if `isCurrent` then. A prediction is whole without them. */
async function explain(image, { name, rank }, area, isCurrent) {
  const form = new FormData();
  form.append("image", image, "image");
  const query = new URLSearchParams({ name, rank, count: SHOWN_EXAMPLES });
  try {
    const { by, examples } = await ask(`/examples?${query}`, { method: "POST", body: form }).then(response => response.json());
    const blobs = await Promise.all(examples.map(({ thumbnail }) => ask(thumbnail).then(response => response.blob())));
    if (isCurrent()) drawExamples(area, `${by === "similarity" ? "Most similar" : "Recent"} examples of ${name}`, examples, blobs);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (isCurrent()) area.hidden = true;
  }
}

function drawExamples(area, title, examples, blobs) {
  const list = area.querySelector("ul");
  for (const image of list.querySelectorAll("img")) URL.revokeObjectURL(image.src);
  area.querySelector("h3").textContent = title;
  list.replaceChildren(...examples.map(({ number, name }, place) => make("li", {},
    make("img", { src: URL.createObjectURL(blobs[place]), alt: "", title: `number ${count(number)}` }), make("small", { dir: "auto" }, name))));
  area.hidden = !examples.length;
}
