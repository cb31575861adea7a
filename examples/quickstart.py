"""Learn from images labelled at mixed levels, predict at every level, save and continue."""

from dhocl import Classifier
from dhocl.data import Selection, load
from dhocl.knowledge import Oracle
from dhocl.stream import PlanConfig, Stream, plan

# Images of letters stand in for yours. Anything goes: paths, PIL images, arrays; each with a (name, level).
letters = load("glyphs", Selection(samples=2000, test_samples=200))
stream = Stream(letters, plan(letters.train.nodes.numpy(), letters.tree, PlanConfig(groups=4)), batch=32)

classifier = Classifier(letters.levels, source=Oracle(letters.tree), image_size=64, flip=False)
for images, labels in stream.batches():
    classifier.learn(images, [(label.name, letters.levels[label.level]) for label in labels])

for prediction, node in zip(classifier.predict(letters.test.images), letters.test.nodes[:5].tolist(), strict=False):
    print(letters.tree.labels[node].name, "->", prediction)
classifier.save("runs/quickstart")
classifier = Classifier.load("runs/quickstart", source=Oracle(letters.tree))  # goes on exactly where it stood
