"""Whole runs: the cost of evaluation, and two parallel runs compared with two sequential ones."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from timing import Row

from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset, run
from dhocl.experiment.sweep import Job, start


def evaluation(quick: bool, data: Path | None) -> list[Row]:
    """HALO with an evaluation every 50 batches on 10,000 test images, as in the paper; all of CIFAR-100 if given.

    `glyphs` has 3,300 test images, so it is evaluated three times as often: the same number of images in total.
    """
    config = RunConfig(image_size=64, samples=3200 if quick else 8000, eval_every=1600 * 3300 // 10_000)
    if data is not None:
        samples = config.samples if quick else None
        config = replace(config, dataset="cifar100", data=str(data), samples=samples, eval_every=1600)
    with tempfile.TemporaryDirectory() as folder:
        for _ in run(config, Path(folder) / "run"):
            pass
        summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    judging, learning = summary["seconds_evaluating"], summary["seconds_training"]
    learned = f"{config.samples or 'all'} images of {config.dataset}"
    return [
        Row(
            f"HALO on {learned}, all test images evaluated every {config.eval_every}",
            f"{judging:.1f} s evaluating / {learning:.1f} s training = {judging / learning:.2f}",
            {"eval_over_train": judging / learning},
        )
    ]


def side_by_side(quick: bool) -> list[Row]:
    """Two runs on two cores: in parallel with one thread each, compared with one after the other with two threads."""
    samples = 640 if quick else 3200
    configs = [RunConfig("er", image_size=64, samples=samples, test_samples=500, seed=seed) for seed in (0, 1)]
    for config in configs:
        load_dataset(config)  # so that neither side has to render the images
    spent: dict[int, float] = {}
    for workers in (1, 2, 1, 2) if not quick else (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            jobs = [Job(config, Path(folder) / str(config.seed)) for config in configs]
            began = time.perf_counter()
            with contextlib.closing(start(jobs, "local", workers, None)) as events:  # type: ignore[type-var]
                for _ in events:
                    pass
            spent[workers] = min(spent.get(workers, float("inf")), time.perf_counter() - began)
    return [
        Row(
            "a sweep of two runs of er, side by side",
            f"{spent[1] / spent[2]:.2f} x as fast as one after the other ({spent[2]:.0f} s against {spent[1]:.0f})",
            {"side_by_side_speedup": spent[1] / spent[2]},
        )
    ]
