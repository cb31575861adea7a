"""What is left of samples after they are forgotten, compared with a model that never saw them.

    python benchmarks/forgetting.py [--samples 2000] [--forgotten 100] [--backbone efficientnet_lite0]

`glyphs` at 64 px, each image labelled at a random rank. Three models learn the same stream: one with all samples, the
same after random ones are forgotten, and one that never saw these. Numbers are the largest absolute difference to the
last: of the sums, and of the probabilities of test images. The methods fit penalties, reliabilities and completions to
the samples as they come. Rows with "same fit" take over what the last model has fitted, so only the sums differ, and
labels are not completed.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from rich.progress import track
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset, make_plan
from dhocl.model import Model, ModelConfig
from dhocl.stream import Stream

FITTED = {"amber": ("reliability", "penalties", "tree"), "ranpac": ("recent",)}  # components that fits depend on
Batches = list[tuple[Tensor, list[Label]]]


def choose(batches: Batches, count: int) -> set[int]:
    """Random samples, none the first of its class: the tree of all models is the same."""
    labels = [label for _, some in batches for label in some]
    later = [place for place, label in enumerate(labels) if label in labels[:place]]
    return set(Rng(0, "forgotten").choice(later, count, replace=False).tolist())


def sums(model: Model) -> dict[str, Tensor]:
    """The statistics, without soft targets: those of other samples depend on what was known when they came."""
    learner: Any = model.learner
    if hasattr(learner, "analytic"):
        heads = learner.analytic.state_dict()
        return {f"{name} {level}": head[name] for level, head in heads.items() for name in ("R", "W")}
    grams = getattr(learner.statistics, "grams", {})
    return {"sums": learner.statistics.sums.filled} | {f"gram {level}": gram for level, gram in grams.items()}


def apart(a: dict[Any, Tensor], b: dict[Any, Tensor]) -> float:
    return max(float((a[key] - b[key]).abs().max()) for key in b)


def compare(
    made_of: ModelConfig, tree: Taxonomy, batches: Batches, gone: set[int], test: Tensor, same_fit: bool
) -> list[str]:
    """Differences of the sums and of the probabilities, each before and after."""
    model, never, first = Model(made_of, tree=tree), Model(made_of, tree=tree), 0
    taken: list[tuple[Tensor, Label]] = []
    for x, labels in track(batches, f"{made_of.method}, {made_of.settings}"):
        model.observe(x, labels)
        rest = [row for row in range(len(labels)) if first + row not in gone]
        taken += [(x[row], labels[row]) for row in range(len(labels)) if first + row in gone]
        never.observe(x[rest], [labels[row] for row in rest])
        first += len(labels)
    before = apart(sums(model), sums(never))
    with_them, without = model.probabilities(test), never.probabilities(test)
    model.forget(torch.stack([x for x, _ in taken]), [label for _, label in taken])
    for name in FITTED[made_of.method] if same_fit else ():
        model.learner.components()[name].load_state_dict(never.learner.components()[name].state_dict())
    numbers = (
        before,
        apart(sums(model), sums(never)),
        apart(with_them, without),
        apart(model.probabilities(test), without),
    )
    return [f"{number:.1e}" for number in numbers]


def main(
    samples: int = 2000,
    forgotten: int = 100,
    backbone: str = "efficientnet_lite0",
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")] = "amber,ncm,slda,ranpac,acil",
) -> None:
    config = RunConfig("amber", samples=samples, test_samples=220, image_size=64)
    dataset = load_dataset(config)
    batches = list(Stream(dataset, make_plan(config, dataset).table, 32).batches())
    gone, test = choose(batches, forgotten), dataset.test.images[:220]
    rows = []
    for method in methods.split(","):
        for same_fit in (False, True) if method in FITTED else (False,):
            completion = {"completion": "never"} if same_fit and method == "amber" else {}
            made_of = ModelConfig(
                dataset.levels,
                method,
                backbone,
                image_size=64,
                flip=dataset.flip,
                settings=completion,
                calibrate=False,
            )
            name = f"`{method}`{', same fit' * same_fit}{', `completion=never`' * bool(completion)}"
            rows.append([name, *compare(made_of, dataset.tree, batches, gone, test, same_fit)])
    print("| method | sums: before | after | probabilities: before | after |\n|---|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    typer.run(main)
