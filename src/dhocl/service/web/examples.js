"use strict";
// Why: stored examples of the predicted class that look most like the image.

const SHOWN_EXAMPLES = 4;

/** Show them once they are there, unless another image was given since. A prediction is whole without them. */
async function explain(image, shown) {
  const { name, rank } = shown.sure ?? shown.path[0], form = new FormData();
  form.append("image", image, "image");
  const query = new URLSearchParams({ name, rank, count: SHOWN_EXAMPLES });
  try {
    const { by, examples } = await ask(`/examples?${query}`, { method: "POST", body: form }).then(response => response.json());
    const blobs = await Promise.all(examples.map(({ thumbnail }) => ask(thumbnail).then(response => response.blob())));
    if (prediction === shown) drawExamples(`${by === "similarity" ? "Most similar" : "Recent"} examples of ${name}`, examples, blobs);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (prediction === shown) at("why").hidden = true;
  }
}

function drawExamples(title, examples, blobs) {
  for (const image of at("why-list").querySelectorAll("img")) URL.revokeObjectURL(image.src);
  at("why-title").textContent = title;
  at("why-list").replaceChildren(...examples.map(({ number, name }, place) => make("li", {},
    make("img", { src: URL.createObjectURL(blobs[place]), alt: "", title: `number ${count(number)}` }), make("small", { dir: "auto" }, name))));
  at("why").hidden = !examples.length;
}
