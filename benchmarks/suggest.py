"""Labels needed for the same accuracy: images and ranks that are suggested, against random ones.

    python benchmarks/suggest.py simulate DATASET --data DIR [--pool long-tailed] [--seeds 0,1,2] [--out FILE]
    python benchmarks/suggest.py show [--out FILE] [--figure docs/images/suggest.svg]

A pool of 2,000 training images without labels (CUB-200 at 96 px, glyphs at 64 px) is labelled 40 images at a time, by
the true tree at the rank that is asked for. After each batch, accuracy at every rank is measured on 1,000 test images
of all classes: one that nobody has named yet is a mistake. A long-tailed pool has 20 times as many images of the most
frequent class as of the rarest. The network is frozen and its features are computed once; AMBER takes the final
features alone (stages=0), which takes minutes instead of hours. Settings were chosen with seed 100, which holds out
training images.

Finished curves are added to the file. What is in it is not run again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import matplotlib
import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from rich.progress import track
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import BASES, Scale
from dhocl.experiment.run import load_dataset
from dhocl.model import Model, ModelConfig
from dhocl.model.suggest import Looks, ranks, suggest
from dhocl.report.svg import COLOURS, INK, STYLE

Pool = Literal["balanced", "long-tailed"]
CHOICES = {  # name -> how images and ranks are chosen
    "random": ("random", "random"),
    "random images, suggested ranks": ("random", "suggested"),
    "random images, finest rank": ("random", "finest"),
    "suggested images, finest rank": ("suggested", "finest"),
    "suggested": ("suggested", "suggested"),
}
IMAGES, TESTS, BATCH, LABELS = 2000, 1000, 40, 600
TAIL = 0.05  # images of the rarest class, relative to the most frequent one
PAIRS = [
    ("suggested", "random"),
    ("suggested", "random images, suggested ranks"),
    ("suggested images, finest rank", "random images, finest rank"),
]
MARKS = (200, 400, 600)  # labels at random, whose accuracy is to be reached
OUT = Path("docs/results/suggest.jsonl")


class World(NamedTuple):
    model: Model  # that computed the features
    phi: Tensor  # (images, D)
    lineages: list[dict[int, Label]]  # of the images: level -> label
    test: Tensor  # (tests, D)
    truths: list[dict[int, Label]]


def world(dataset: str, seed: int, pool: Pool, data: Path | None) -> World:
    base = BASES[Scale.mini][dataset] | {"test_samples": TESTS, "data": None if data is None else str(data)}
    config = RunConfig("amber", dataset=dataset, seed=seed, holdout=seed >= 100, **base)
    loaded = load_dataset(config)
    tree, nodes = loaded.tree, loaded.train.nodes
    rng = np.random.default_rng([seed, 0x9001])
    rows = rng.permutation(len(nodes))
    if pool == "long-tailed":
        rows = np.array(sorted(thinned(nodes[rows].numpy(), rows, rng)))
        rng.shuffle(rows)
    rows = np.sort(rows[:IMAGES])
    made_of = ModelConfig(loaded.levels, image_size=loaded.image_size, flip=loaded.flip, settings={"stages": 0.0})
    model = Model(made_of, tree=tree)
    given = {"images": loaded.train.images[rows], "tests": loaded.test.images[np.arange(len(loaded.test))]}
    features = [
        torch.cat([embedded(model, part) for part in track(torch.split(x, 250), f"features of {what}")])
        for what, x in given.items()
    ]

    def lineages(nodes: Tensor) -> list[dict[int, Label]]:
        return [{tree.labels[a].level: tree.labels[a] for a in tree.lineage(node)} for node in nodes.tolist()]

    return World(model, features[0], lineages(nodes[rows]), features[1], lineages(loaded.test.nodes))


def thinned(classes: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> Iterator[int]:
    """Rows of a pool in which classes are frequent and rare, by a geometric sequence in random order."""
    names, counts = np.unique(classes, return_counts=True)
    for place, name in enumerate(rng.permutation(names).tolist()):
        kept = max(1, round(int(counts.min()) * TAIL ** (place / (len(names) - 1))))
        yield from rows[classes == name][:kept].tolist()


def embedded(model: Model, x: Tensor) -> Tensor:
    phi = model.learner.frozen_features(x)
    assert phi is not None
    return phi


def curve(world: World, choice: str, seed: int) -> list[dict[str, Any]]:
    """Accuracy per rank after each batch of labels."""
    images, rank = CHOICES[choice]
    config = world.model.config
    model = Model(config, tree=world.model.tree, backbone=world.model.backbone)
    rng, left, found = Rng(seed, f"suggest {choice}"), torch.arange(len(world.phi)), []
    for labels in range(BATCH, LABELS + 1, BATCH):
        phi = world.phi[left]
        beliefs = model.beliefs(phi) if len(model.taxonomy) else None
        looks = Looks.at(beliefs, len(phi), len(config.levels))
        rows = (
            rng.permutation(len(left))[:BATCH].tolist()
            if images == "random"
            else [each.row for each in suggest(looks, phi, model.learner.learned(), BATCH)]
        )
        finest = len(config.levels) - 1
        levels = {
            "random": rng.integers(0, finest + 1, len(rows)).tolist(),
            "suggested": ranks(looks, rows),
            "finest": [finest] * len(rows),
        }[rank]
        model.observe(phi[rows], [world.lineages[left[row]][level] for row, level in zip(rows, levels, strict=True)])
        left = left[[row for row in range(len(left)) if row not in set(rows)]]
        found.append({"labels": labels, "asked": np.bincount(levels, minlength=finest + 1).tolist()})
        found[-1]["accuracy"] = accuracy(model, world)
    return found


def accuracy(model: Model, world: World) -> list[float]:
    """Percent per level. Classes that are not known yet are mistakes."""
    choices, tree = model.beliefs(world.test).choices("path"), model.taxonomy
    shares = []
    for level in range(len(model.config.levels)):
        nodes = tree.nodes(level)[choices[level].column].tolist() if level in choices else []
        hits = [tree.labels[node] == truth[level] for node, truth in zip(nodes, world.truths, strict=False)]
        shares.append(100 * sum(hits) / len(world.truths))
    return shares


app = typer.Typer()


@app.command()
def simulate(
    dataset: str,
    data: Annotated[Path | None, typer.Option(help="Folder of the archives.")] = None,
    pool: Pool = "balanced",
    seeds: str = "0,1,2",
    choices: Annotated[str, typer.Option(help="Some of the ways to choose, separated by semicolons.")] = "",
    out: Path = OUT,
) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(c["dataset"], c["pool"], c["seed"], c["choice"]) for c in read(out)}
    for seed in map(int, seeds.split(",")):
        missing = [c for c in choices.split(";") if c] or list(CHOICES)
        missing = [choice for choice in missing if (dataset, pool, seed, choice) not in done]
        if not missing:
            continue
        made = world(dataset, seed, pool, data)
        for choice in track(missing, f"{dataset}, {pool}, seed {seed}"):
            about = {"dataset": dataset, "pool": pool, "seed": seed, "choice": choice}
            about |= {"levels": list(made.model.config.levels), "curve": curve(made, choice, seed)}
            with out.open("a") as file:
                file.write(json.dumps(about) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def needed(accuracies: np.ndarray, mark: float) -> float | None:
    """Labels until an accuracy is reached, by interpolation between batches; None if it is not."""
    x, y = np.arange(0, LABELS + 1, BATCH), np.maximum.accumulate([0.0, *accuracies])
    if mark > y[-1]:
        return None
    place = int(np.argmax(y >= mark))
    low, high = y[place - 1], y[place]
    return float(x[place - 1] + BATCH * (mark - low) / (high - low)) if high > low else float(x[place])


def mean_curves(curves: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """choice -> (batches, levels) accuracies, averaged over the seeds."""
    by_choice = {c["choice"]: [d for d in curves if d["choice"] == c["choice"]] for c in curves}
    return {
        choice: np.mean([[step["accuracy"] for step in c["curve"]] for c in same], 0)
        for choice, same in by_choice.items()
    }


def saved(means: dict[str, np.ndarray], choice: str, level: int, mark: int) -> str:
    """Labels until `choice` reaches the accuracy that random ones have reached after `mark`, and the difference."""
    reached = float(means["random"][: mark // BATCH, level].max())
    labels = needed(means[choice][:, level], reached)
    return "more" if labels is None else f"{labels:.0f} ({100 * (labels / mark - 1):+.0f} %)"


@app.command()
def show(out: Path = OUT, figure: Annotated[Path | None, typer.Option(help="SVG file to draw.")] = None) -> None:
    """Print tables, and draw a figure."""
    curves = read(out)
    panels = {
        (c["dataset"], c["pool"]): [d for d in curves if (d["dataset"], d["pool"]) == (c["dataset"], c["pool"])]
        for c in curves
    }
    print("| pool | rank | choice |" + "".join(f" as {mark} random |" for mark in MARKS) + f" accuracy at {LABELS} |")
    print("|---|---|---|" + "---:|" * (len(MARKS) + 1))
    for (dataset, pool), same in panels.items():
        means = mean_curves(same)
        for level, rank in enumerate(same[0]["levels"]):
            for choice in means:
                cells = [saved(means, choice, level, mark) for mark in MARKS]
                cells.append(f"{means[choice][-1, level]:.1f}")
                print(f"| {dataset}, {pool} | {rank} | {choice} | {' | '.join(cells)} |")
    for (dataset, pool), same in panels.items():
        for choice in CHOICES:
            asked = [np.sum([step["asked"] for step in c["curve"]], 0) for c in same if c["choice"] == choice]
            if asked:
                print(f"{dataset}, {pool}, {choice}: labels per rank {np.mean(asked, 0).round().astype(int).tolist()}")
    print("| pool | difference of mean accuracies over the curve | rank | mean | each seed |\n|---|---|---|---:|---|")
    for (dataset, pool), same in panels.items():
        for choice, other in PAIRS:
            for level, found in enumerate(differences(same, choice, other)):
                each = " ".join(f"{value:+.1f}" for value in found)
                mean, rank = f"{np.mean(found):+.1f}", same[0]["levels"][level]
                print(f"| {dataset}, {pool} | {choice} - {other} | {rank} | {mean} | {each} |")
    if figure:
        draw(panels, figure)


def differences(curves: list[dict[str, Any]], choice: str, other: str) -> np.ndarray:
    """(levels, seeds) mean accuracy over the labels of one choice minus that of the other; empty if one is missing."""
    means = {
        (c["choice"], c["seed"]): np.mean([step["accuracy"] for step in c["curve"]], 0) for c in curves
    }  # (levels,)
    seeds = sorted(seed for name, seed in means if name == choice and (other, seed) in means)
    return np.array([means[choice, seed] - means[other, seed] for seed in seeds]).T


def draw(panels: dict[tuple[str, str], list[dict[str, Any]]], file: Path) -> None:
    """A column for each data set and pool, a row for each rank."""
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(2.4 * len(panels), 5.4), layout="constrained")
        grid = drawn.subplots(3, len(panels), squeeze=False, sharex=True)
        for column, ((dataset, pool), same) in enumerate(panels.items()):
            means = mean_curves(same)
            for level, rank in enumerate(same[0]["levels"]):
                axes = grid[level, column]
                for place, choice in enumerate(CHOICES):
                    if choice in means:
                        labels = range(BATCH, LABELS + 1, BATCH)
                        axes.plot(labels, means[choice][:, level], color=COLOURS[place], label=choice)
                axes.set_ylabel(f"{rank}, %")
            grid[0, column].set_title(f"{dataset}, {pool}", fontsize=8.5)
            grid[-1, column].set_xlabel("labels")
        shown = max((axes.get_legend_handles_labels() for axes in grid[0]), key=lambda found: len(found[1]))
        drawn.legend(*shown, loc="outside lower center", ncols=2, frameon=False)
        with matplotlib.rc_context({"svg.hashsalt": "suggest"}):
            text = StringIO()
            drawn.savefig(text, format="svg", metadata={"Date": None})
    file.write_text(re.sub(r"[ \t]+\n", "\n", text.getvalue().replace(INK, "#333")))


if __name__ == "__main__":
    app()
