"""The cost of classes to a service: bytes of a checkpoint, memory, and the time to learn 32 images.

    python benchmarks/classes.py [--classes 1000 --classes 5000] [--width 2688] [--out FILE]

AMBER learns random vectors as wide as the features of the default backbone, so no network is in the figures. A tenth of
the classes are genera, the others species below them. All classes have arrived, in 20,000 samples, when the measurement
begins. As in the service, a micro-batch is predicted before it is learned, and a copy for predictions follows it. While
more observations wait, the copy may lack the last ones ("busy"); else it has all ("idle"). Each row is a process of its
own. Times are processor times: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from dhocl import Classifier
from dhocl.core import checkpoint
from dhocl.core.process import keep_freed_memory
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Oracle
from dhocl.model import Model

BATCH, FILL, TURNS = 32, 500, 16
SAMPLES = 20_000  # before the measurement
COLUMNS = ("checkpoint_mb", "memory_mb", "busy_ms", "idle_ms", "longest_ms", "predict_ms", "write_ms")


def labels_of(classes: int) -> list[Label]:
    genera = max(1, classes // 10)
    return [Label(f"{'species' if i >= genera else 'genus'} {i}", int(i >= genera)) for i in range(classes)]


def true_tree(labels: list[Label]) -> Taxonomy:
    tree = Taxonomy()
    genera = [label for label in labels if label.level == 0]
    for i, label in enumerate(labels):
        node = tree.add(label)
        if label.level:
            tree.link(node, tree.id(genera[i % len(genera)]))
    return tree


def megabytes() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def milliseconds(began: float) -> float:
    return 1000 * (time.process_time() - began)


def measure(classes: int, width: int) -> dict[str, float]:
    keep_freed_memory()
    labels, draw = labels_of(classes), torch.Generator().manual_seed(0)
    source = Oracle(true_tree(labels))
    model = Classifier(["genus", "species"], backbone=f"features:{width}", source=source, calibrate=True).model
    before = megabytes()
    rng = np.random.default_rng(0)

    def vectors(n: int) -> torch.Tensor:
        return torch.randn(n, width, 1, 1, generator=draw)

    for start in range(0, SAMPLES, FILL):
        model.observe(vectors(FILL), [labels[i % classes] for i in range(start, start + FILL)])
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * TURNS):
        lagging = turn < TURNS
        given = [labels[i] for i in rng.integers(0, classes, BATCH)]
        began = time.process_time()
        model.observe(vectors(BATCH), given)
        reader = model.reader(lagging)
        times[lagging].append(milliseconds(began))
    return {
        "classes": classes,
        **stored(model),
        "memory_mb": megabytes() - before,
        "busy_ms": float(np.median(times[True])),
        "idle_ms": float(np.median(times[False])),
        "longest_ms": max(times[True] + times[False]),
        "predict_ms": predicted(reader, vectors(1)),
    }


def stored(model: Model) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        path = checkpoint.save(Path(folder), {"model": model.state_dict()})
        return {"write_ms": milliseconds(began), "checkpoint_mb": path.stat().st_size / 2**20}


def predicted(reader: Model, x: torch.Tensor) -> float:
    taken = []
    for _ in range(10):
        began = time.process_time()
        reader.beliefs(x)
        taken.append(milliseconds(began))
    return float(np.median(taken))


def main(
    classes: Annotated[list[int] | None, typer.Option(help="Numbers of classes.")] = None,
    width: Annotated[int, typer.Option(help="Features; 2,688 are those of the default backbone.")] = 2688,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    table = Table("classes", *COLUMNS)
    rows = []
    with mp.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for count in classes or (100, 1000, 5000, 20_000):
            rows.append(pool.apply(measure, (count, width)))
            table.add_row(f"{count:,}", *(f"{rows[-1][name]:,.0f}" for name in COLUMNS))
            Console(stderr=True).print(f"{count:,} classes measured")
            if out:
                out.write_text(json.dumps(rows, indent=1) + "\n")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
