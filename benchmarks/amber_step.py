"""AMBER's step in milliseconds, part by part, and the size of its state.

    python benchmarks/amber_step.py [--quick]

Batches of 32 images at 64 pixels, on a tree that is known from the start, with completion. Some parts act at each
batch, others when the stream has grown by a share. So a step is cheaper late in a longer stream.

A step is compared with one forward pass of the backbone at the learner's side, and with its features: two forward
passes, as each image is also mirrored. With calibration, as in the service, each batch is predicted before it is
learned, by a solution that is made again now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import torch
import typer
from halo_step import PIECE, named_pieces
from rich.console import Console
from timing import Row
from torch.profiler import ProfilerActivity, profile
from worlds import BATCH, World, full_tree, make_learner

from dhocl.core.process import keep_freed_memory
from dhocl.experiment.run import nbytes
from dhocl.methods import amber
from dhocl.methods.amber import Amber
from dhocl.nn import backbones
from dhocl.nn.backbones import Backbone
from dhocl.nn.features import StageFeatures
from dhocl.nn.heads.ridge import Statistics
from dhocl.nn.heads.window import Window

SIZE = 64
LENGTHS = (6_000, 50_000)  # samples: CIFAR-100 at mini scale, and whole
DEFAULTS = amber.AmberSettings()
PARTS: list[tuple[Any, str, str]] = [
    (Backbone, "pooled", "forward"),
    (StageFeatures, "__call__", "features"),
    (Statistics, "add", "statistics"),
    (Window, "refresh", "completion"),
    (amber, "doubts", "doubts"),
    (Amber, "_fit", "fit"),
    (Amber, "_solved", "solution"),
    (Amber, "_predict", "prediction"),
]


class Step(NamedTuple):
    """Milliseconds of a batch, with its share of the parts that act rarely."""

    learned: float
    foreseen: float  # and predicted before


def step(took: dict[str, float], seen: int) -> Step:
    period = max(DEFAULTS.refresh, min(DEFAULTS.window, seen // amber.LATE))
    rarely = took["completion"] / period + (took["doubts"] + took["fit"]) / (seen // amber.GROWTH)
    learned = took["features"] + took["statistics"] + BATCH * rarely
    solutions = BATCH / (amber.LAG * period + BATCH)
    return Step(learned, learned + took["prediction"] + solutions * took["solution"])


def measure(classes: int, levels: int, samples: int) -> tuple[dict[str, float], float]:
    """Milliseconds per call of each part, and megabytes of state with the solution for foresight."""
    world = World(full_tree(classes, levels), SIZE)
    learner = make_learner("amber", backbones.load("efficientnet_lite0"), completion="always")
    assert isinstance(learner, Amber)
    for _ in range(samples // BATCH):
        learner.learn(world.batch(), world.tree)
    learner.reliability.fitted_at = 0  # so that the next refresh fits
    with named_pieces(PARTS), profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(DEFAULTS.refresh // BATCH):
            batch = world.batch()
            learner.learn(batch, world.tree)
            learner.foresee(batch.x)  # its features are kept: they are computed once, in either order
    spent = {each.key: each.cpu_time_total / each.count / 1000 for each in found.key_averages()}
    return {name: spent[PIECE + name] for _, _, name in PARTS}, nbytes(learner.state_dict()) / 1e6


def rows(quick: bool) -> Iterator[Row]:
    for classes, levels in ((100, 3),) if quick else ((100, 3), (1000, 7), (10_000, 7)):
        took, megabytes = measure(classes, levels, 256 if quick else 2048)
        steps = {seen: step(took, seen) for seen in LENGTHS}
        text = ", ".join(f"{name} {value:.0f}" for name, value in took.items())
        yield Row(
            f"AMBER, {classes:,} classes, {levels} levels",
            f"ms: {text}; a step after {LENGTHS[0]:,} and {LENGTHS[1]:,} samples: "
            f"{_ratios([each.learned for each in steps.values()], took)}; with calibration before learning, as in the "
            f"service: {_ratios([each.foreseen for each in steps.values()], took)}; state {megabytes:.0f} MB",
            {f"amber_{classes}x{levels}.{name}": value for name, value in took.items()}
            | {f"amber_{classes}x{levels}.step_{seen}": value.learned for seen, value in steps.items()}
            | {f"amber_{classes}x{levels}.foreseen_step_{seen}": value.foreseen for seen, value in steps.items()}
            | {f"amber_{classes}x{levels}.state_mb": megabytes},
        )


def _ratios(steps: list[float], took: dict[str, float]) -> str:
    return ", ".join(
        " and ".join(f"{value / took[part]:.2f}" for value in steps) + f" x {part}" for part in ("forward", "features")
    )


def main(quick: Annotated[bool, typer.Option("--quick", help="The smallest tree only.")] = False) -> None:
    torch.set_num_threads(2)
    keep_freed_memory()
    print("| what | measured |\n|---|---|")
    with Console(stderr=True).status("measuring"):
        for row in rows(quick):
            print(f"| {row.what} | {row.value} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
