"""AMBER's step in milliseconds, part by part, and the size of its state.

    python benchmarks/amber_step.py [--quick]

Batches of 32 images at 64 pixels, on a tree that is known from the start, with completion. Some parts act at each
batch, others when the stream has grown by a share. So a step is cheaper late in a longer stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

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
from dhocl.nn.features import StageFeatures
from dhocl.nn.heads.ridge import Statistics
from dhocl.nn.heads.window import Window

SIZE = 64
LENGTHS = (6_000, 50_000)  # samples: CIFAR-100 at mini scale, and whole
DEFAULTS = amber.AmberSettings()
PARTS: list[tuple[Any, str, str]] = [
    (StageFeatures, "__call__", "features"),
    (Statistics, "add", "statistics"),
    (Window, "refresh", "completion"),
    (amber, "doubts", "doubts"),
    (Amber, "_fit", "fit"),
    (Amber, "_solved", "solution"),
]


def step(took: dict[str, float], seen: int) -> float:
    """Milliseconds of a batch, with its share of the parts that act rarely."""
    completion = max(DEFAULTS.refresh, min(DEFAULTS.window, seen // amber.LATE))
    rarely = took["completion"] / completion + (took["doubts"] + took["fit"]) / (seen // amber.GROWTH)
    return took["features"] + took["statistics"] + BATCH * rarely


def measure(classes: int, levels: int, samples: int) -> tuple[dict[str, float], float]:
    """Milliseconds per call of each part, and megabytes of state."""
    world = World(full_tree(classes, levels), SIZE)
    learner = make_learner("amber", backbones.load("efficientnet_lite0"), completion="always")
    assert isinstance(learner, Amber)
    for _ in range(samples // BATCH):
        learner.learn(world.batch(), world.tree)
    learner.reliability.fitted_at = 0  # so that the next refresh fits
    with named_pieces(PARTS), profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(DEFAULTS.refresh // BATCH):
            learner.learn(world.batch(), world.tree)
        learner.predict(world.images(1))
    spent = {each.key: each.cpu_time_total / each.count / 1000 for each in found.key_averages()}
    return {name: spent[PIECE + name] for _, _, name in PARTS}, nbytes(learner.state_dict()) / 1e6


def rows(quick: bool) -> Iterator[Row]:
    for classes, levels in ((100, 3),) if quick else ((100, 3), (1000, 7), (10_000, 7)):
        took, megabytes = measure(classes, levels, 256 if quick else 2048)
        steps = {seen: step(took, seen) for seen in LENGTHS}
        ratios = " and ".join(f"{value / took['features']:.2f}" for value in steps.values())
        text = ", ".join(f"{name} {value:.0f}" for name, value in took.items())
        yield Row(
            f"AMBER, {classes:,} classes, {levels} levels",
            f"ms: {text}; a step after {LENGTHS[0]:,} and {LENGTHS[1]:,} samples: {ratios} x features; "
            f"state {megabytes:.0f} MB",
            {f"amber_{classes}x{levels}.{name}": value for name, value in took.items()}
            | {f"amber_{classes}x{levels}.step_{seen}": value for seen, value in steps.items()}
            | {f"amber_{classes}x{levels}.state_mb": megabytes},
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
