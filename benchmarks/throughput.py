"""Samples per second of every method, measured alternately in one process, so that other load affects all alike.

    python benchmarks/throughput.py [--samples 640] [--threads 2] [--out FILE]

Each method learns the same stream of `glyphs` at 64 px with EfficientNet-Lite0, batch 32 + 16, buffer 200, two batches
per turn. Work that a method does ten times per stream is included; evaluation is not.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.progress import track

from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset, make_model, make_plan
from dhocl.knowledge import Curator, Oracle
from dhocl.methods import METHODS
from dhocl.nn.learner import Batch
from dhocl.stream import Stream

TURN = 2  # batches


def main(
    samples: Annotated[int, typer.Option(help="Learned by each method.")] = 640,
    threads: int = 2,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    torch.set_num_threads(threads)
    config = RunConfig(samples=samples, test_samples=220, image_size=64, buffer=200)
    dataset = load_dataset(config)
    curator = Curator(Oracle(dataset.tree), config.delay)
    seen = []
    for x, labels in Stream(dataset, make_plan(config, dataset).table, config.batch).batches():
        y = curator.observe(labels)
        seen.append((Batch(x, y), curator.taxonomy.dumps()))
    learners = {
        name: make_model(dataclasses.replace(config, method=name), dataset, samples).learner for name in METHODS
    }
    spent = dict.fromkeys(METHODS, 0.0)
    for turn in track([seen[i : i + TURN] for i in range(0, len(seen), TURN)], "taking turns"):
        trees = [type(curator.taxonomy).loads(text) for _, text in turn]
        for name, learner in learners.items():
            began = time.perf_counter()
            for (batch, _), tree in zip(turn, trees, strict=True):
                learner.learn(batch, tree)
            spent[name] += time.perf_counter() - began
    rates = {name: samples / seconds for name, seconds in spent.items()}
    print("| method | samples/s | time, er = 1 |\n|---|---:|---:|")
    for name, rate in rates.items():
        print(f"| {name} | {rate:.0f} | {rates['er'] / rate:.2f} |")
    if out:
        out.write_text(
            json.dumps({"threads": threads, "samples": samples, "samples_per_second": rates}, indent=1) + "\n"
        )


if __name__ == "__main__":
    typer.run(main)
