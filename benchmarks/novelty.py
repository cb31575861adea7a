"""How well images of unknown classes are recognised as new, and how often those of known classes are called new.

    python benchmarks/novelty.py cifar100 DIR [--samples 6000] [--image-size 64] [--seed 100]

A tenth of the classes of each rank is held back from the stream, with all that lies below. An image is unknown at a
rank if its class there was held back. AUROC compares the scores of unknown and known images of each rank, held out from
the training images. False alarms are known images whose familiarity is at most the rate that was asked for: on the
held-out images after the stream, and in the stream before each image was learned.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import torch
import typer
from rich.progress import track
from torch import Tensor

from dhocl.classifier.prediction import first_new
from dhocl.core.decode import Beliefs
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.data import Dataset
from dhocl.data.dataset import Split
from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset, make_model, make_plan
from dhocl.methods.amber import Amber
from dhocl.model import Model
from dhocl.model.novelty import strangeness
from dhocl.nn.heads.ridge import factor, solve
from dhocl.stream import Stream

HELD = 0.1  # of the classes of each rank
ASKED = (0.01, 0.05, 0.1)  # rates of false alarms
Scores = dict[tuple[str, int], Tensor]  # rule and level -> (n,)


def without(dataset: Dataset, seed: int) -> Dataset:
    """The same without training images of the classes that are held back."""
    tree, rng = dataset.tree, Rng(seed, "held back")
    paths = tree.paths[dataset.train.nodes].numpy()
    held = np.zeros(len(paths), dtype=bool)
    for columns in paths.T:
        classes = np.unique(columns[columns != UNKNOWN])
        held |= np.isin(columns, rng.choice(classes, max(1, round(HELD * len(classes))), replace=False))
    rows = torch.from_numpy(np.flatnonzero(~held))
    return dataclasses.replace(dataset, train=Split(dataset.train.images[rows], dataset.train.nodes[rows]))


def auroc(unknown: Tensor, known: Tensor) -> float:
    """Probability that an unknown image has a higher score than a known one; half for ties."""
    ordered = known.sort().values
    below = torch.searchsorted(ordered, unknown), torch.searchsorted(ordered, unknown, right=True)
    return float((below[0] + below[1]).double().mean() / (2 * len(known)))


def scored(model: Model, x: Tensor) -> tuple[Beliefs, Scores]:
    """By several rules; the first is the one that is used."""
    parts = [model.beliefs(part) for part in torch.split(x, 250)]
    familiar = {level: torch.cat([part.familiar[level] for part in parts]) for level in parts[0].familiar}
    levels = {level: torch.cat([part.levels[level] for part in parts]) for level in parts[0].levels}
    found: Scores = {("entropy", level): strangeness(p) for level, p in levels.items()}
    found |= {("1 - largest probability", level): 1 - p.max(1).values for level, p in levels.items()}
    if isinstance(learner := model.learner, Amber):
        phi, table = torch.cat([learner.features(part) for part in torch.split(x, 250)]), learner.tree.trusted
        for level in table.levels:
            A, M, _ = learner._system(level, table)
            L = factor(A, learner.penalties(level))
            found["1 - largest ridge output", level] = 1 - (phi @ solve(L, M).t()).max(1).values
            found["leverage", level] = (phi * solve(L, phi)).sum(1)
    return Beliefs(levels, torch.cat([part.posterior for part in parts]), parts[0].paths, familiar), found


def known_at(level: int, nodes: Tensor, true: Taxonomy, model: Model) -> Tensor:
    """(n,) whether the class of each image at a level was learned."""
    classes = true.nodes(level).tolist()
    columns = true.paths[nodes, true.levels.index(level)].tolist()
    tree = model.taxonomy
    return torch.tensor([Label(true.labels[classes[column]].name, level) in tree for column in columns])


def called_new(beliefs: Beliefs, level: int, rate: float) -> Tensor:
    """(n,) whether each image is called new at a level, or at a coarser one."""
    found = first_new(beliefs.familiar, rate, len(beliefs.posterior))
    return torch.tensor([new is not None and new <= level for new in found])


def main(dataset: str, data: Path, samples: int = 6000, image_size: int = 64, seed: int = 100) -> None:
    config = RunConfig(
        dataset=dataset, data=data, samples=samples, image_size=image_size, test_samples=2000, holdout=True, seed=seed
    )
    whole = load_dataset(config)
    part = without(whole, seed)
    config = dataclasses.replace(config, calibrate=True)
    stream = Stream(part, make_plan(config, part).table, config.batch)
    model = make_model(config, part, stream.samples)
    alarms: dict[tuple[int, float], list[bool]] = {}
    for x, labels in track(stream.batches(), "learning", total=len(stream)):
        novelty = copy.deepcopy(model.novelty)
        before = model.observe(x, labels).before
        if before is None:
            continue
        beliefs, tree = novelty(before, model.taxonomy), model.taxonomy
        targets = tree.complete(torch.tensor([tree.id(label) for label in labels]))
        for level, p in before.levels.items():
            column = targets[:, tree.levels.index(level)]
            known = (column != UNKNOWN) & (column < p.shape[1])
            for rate in ASKED:
                if level in beliefs.familiar:
                    new = beliefs.familiar[level][known] <= rate
                    alarms.setdefault((level, rate), []).extend(new.tolist())
    with model.resting():
        beliefs, scores = scored(model, whole.test.images[:])
    print(f"{dataset}, {stream.samples} images learned, {len(whole.test)} held out, seed {seed}\n")
    rules = list(dict.fromkeys(rule for rule, _ in scores))
    print(f"| rank | unknown | {' | '.join(rules)} |\n|---|---:|{'---:|' * len(rules)}")
    known = {level: known_at(level, whole.test.nodes, whole.tree, model) for level in whole.tree.levels}
    for level, is_known in known.items():
        shown = (f"{auroc(scores[rule, level][~is_known], scores[rule, level][is_known]):.3f}" for rule in rules)
        print(f"| {whole.levels[level]} | {100 * float((~is_known).float().mean()):.0f} % | {' | '.join(shown)} |")
    print("\n| rank | asked | in the stream | held out, rank alone | held out, called new | unknown, called new |")
    print("|---|---:|---:|---:|---:|---:|")
    for (level, rate), found in alarms.items():
        alone = beliefs.familiar[level][known[level]] <= rate
        new = called_new(beliefs, level, rate)
        shares = [np.mean(found), *(float(part.float().mean()) for part in (alone, new[known[level]]))]
        shares.append(float(new[~known[level]].float().mean()))
        shown = (f"{100 * share:.1f} %" for share in shares)
        print(f"| {whole.levels[level]} | {100 * rate:.0f} % | {' | '.join(shown)} |")


if __name__ == "__main__":
    typer.run(main)
