"""CUB-200 in two halves that are learned apart and merged, in one stream, and in bulk.

    python benchmarks/merging.py DIR [--samples 5994] [--seed 0]

The halves are the first and the second part of a stream that drifts, so that most species are known to one of the
models alone. Without completion all is additive; with it (the default), each model completes coarse labels by what it
knows itself. A model that learns in bulk gets the same images and labels as files. Printed: the largest difference of
the sums, relative to the largest of them, and the accuracy per rank on 1,000 test photographs.
"""

from __future__ import annotations

import csv
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
import typer
from PIL import Image
from rich.progress import track
from torch import Tensor

from dhocl import Classifier, Label, Model
from dhocl.bulk.learning import learn_in_bulk
from dhocl.core.taxonomy import UNKNOWN
from dhocl.data import Dataset
from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset, make_model, make_plan
from dhocl.methods.amber import Amber
from dhocl.model.merging import merge
from dhocl.stream import Stream

Settings = dict[str, object]
WAYS: dict[str, Settings] = {"without completion": {"completion": "never"}, "with completion": {}}


def learned(config: RunConfig, dataset: Dataset, stream: Stream, first: int, last: int, what: str) -> Model:
    """A model that has learned some of the batches."""
    model = make_model(config, dataset, stream.samples)
    for number, (x, labels) in enumerate(track(stream.batches(), what, total=len(stream))):
        if first <= number < last:
            model.observe(x, labels)
    return model


def learned_in_bulk(config: RunConfig, dataset: Dataset, stream: Stream, folder: Path) -> Model:
    """From files, with the whole tree known at the start."""
    photos, tree = folder / "photos", dataset.tree
    photos.mkdir()
    rows = []
    for number, (x, labels) in enumerate(stream.batches()):
        for place, (pixels, label) in enumerate(zip(x, labels, strict=True)):
            rows.append((f"{number}-{place}.png", label.name, dataset.levels[label.level]))
            Image.fromarray(np.asarray(pixels).transpose(1, 2, 0)).save(photos / rows[-1][0])
    write(photos / "labels.csv", ",", [("path", "label", "level"), *rows])
    parents = [tree.parent(node) for node in range(len(tree))]
    links = [
        (label.name, dataset.levels[label.level], "" if parent == UNKNOWN else tree.labels[parent].name)
        for label, parent in zip(tree.labels, parents, strict=True)
    ]
    write(photos / "tree.tsv", "\t", [("child", "level", "parent"), *links])
    for _ in learn_in_bulk(folder / "model", photos, {"image_size": config.image_size, "settings": config.settings}):
        pass
    return Classifier.load(folder / "model").model


def write(file: Path, delimiter: str, rows: list[tuple[str, ...]]) -> None:
    with file.open("w", newline="") as opened:
        csv.writer(opened, delimiter=delimiter).writerows(rows)


def sums(model: Model) -> dict[Label, Tensor]:
    """(D,) for each class, and (D, D) for each rank."""
    learner, tree = model.learner, model.taxonomy
    assert isinstance(learner, Amber)
    found = {Label("", level): gram for level, gram in learner.statistics.grams.items()}
    for node, row in enumerate(learner.statistics.sums.filled):
        label = tree.labels[tree.accepted(node)]
        found[label] = found[label] + row if label in found else row
    return found


def difference(one: Model, other: Model) -> float:
    mine, theirs = sums(one), sums(other)
    assert mine.keys() == theirs.keys()
    largest = max(float(each.abs().max()) for each in theirs.values())
    return max(float((mine[label] - theirs[label]).abs().max()) for label in mine) / largest


def accuracy(model: Model, dataset: Dataset) -> list[float]:
    """Per cent at each rank, by path; a class that is not known is a mistake."""
    true, tree, x = dataset.tree, model.taxonomy, dataset.test.images[:]
    with model.resting():
        parts = [model.probabilities(part) for part in torch.split(x, 250)]
    found = []
    for place, level in enumerate(true.levels):
        known = [tree.labels[node].name for node in tree.nodes(level).tolist()]
        names = [true.labels[node].name for node in true.nodes(level).tolist()]
        best = torch.cat([part[level].argmax(1) for part in parts]).tolist()
        truth = true.paths[dataset.test.nodes, place].tolist()
        right = [known[column] == names[own] for column, own in zip(best, truth, strict=True)]
        found.append(100 * sum(right) / len(right))
    return found


def main(data: Path, samples: int = 5994, seed: int = 0) -> None:
    config = RunConfig(dataset="cub200", data=data, samples=samples, image_size=96, test_samples=1000, seed=seed)
    dataset = load_dataset(config)
    stream = Stream(dataset, make_plan(config, dataset).table, config.batch)
    half, rows = len(stream) // 2, []
    for name, settings in WAYS.items():
        chosen = dataclasses.replace(config, settings=settings)
        first = learned(chosen, dataset, stream, 0, half, f"{name}: first half")
        second = learned(chosen, dataset, stream, half, len(stream), f"{name}: second half")
        whole = learned(chosen, dataset, stream, 0, len(stream), f"{name}: both")
        rows += [(name, "first half alone", accuracy(first, dataset), "")]
        conflicts = merge(first, second)
        assert not conflicts, conflicts
        rows += [(name, "merged", accuracy(first, dataset), f"{difference(first, whole):.1e}")]
        rows += [(name, "learned by one", accuracy(whole, dataset), "")]
        with tempfile.TemporaryDirectory() as folder:
            bulk = learned_in_bulk(chosen, dataset, stream, Path(folder))
        rows += [(name, "learned in bulk", accuracy(bulk, dataset), f"{difference(bulk, whole):.1e}")]
    print(f"\n| | model | {' | '.join(dataset.levels)} | sums differ by |")
    print(f"|---|---|{'---:|' * len(dataset.levels)}---:|")
    for name, model, right, differs in rows:
        print(f"| {name} | {model} | {' | '.join(f'{each:.1f}' for each in right)} | {differs} |")


if __name__ == "__main__":
    typer.run(main)
