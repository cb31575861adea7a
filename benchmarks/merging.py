"""Two halves of CUB-200, learned apart and merged, compared with one model that learned both.

    python benchmarks/merging.py DIR [--samples 5994] [--seed 0]

The halves are the first and the second part of a stream that drifts, so that most species are known to one of the
models alone. Without completion all is additive; with it (the default), each model completes coarse labels by what it
knows itself. Printed: the largest difference of the sums, relative to the largest of them, and the accuracy per rank on
1,000 test photographs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
import typer
from rich.progress import track
from torch import Tensor

from dhocl import Label, Model
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
    print(f"\n| | model | {' | '.join(dataset.levels)} | sums differ by |")
    print(f"|---|---|{'---:|' * len(dataset.levels)}---:|")
    for name, model, right, differs in rows:
        print(f"| {name} | {model} | {' | '.join(f'{each:.1f}' for each in right)} | {differs} |")


if __name__ == "__main__":
    typer.run(main)
