"""The same small search for every method that trains: learning rates, on held-out training images.

    python benchmarks/search.py --data DIR [METHOD ...] [--seed 100] [--out runs/search]

Backbone rates 1e-5, 1e-4 and 3e-4, head rates 1e-3 and 3e-3, and MORE where the best of these is at the edge. Streams
have half the length of mini scale (CIFAR-100: 3,000 images at 64 px, CUB-200: 1,500 at 96 px) and are evaluated on
held-out training images. One setting is chosen for both data sets: the highest mean AAUC. DIR holds the published
archives.

Results are added to docs/results/search.csv. What is in it is not run again: delete rows to repeat them.
"""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from dhocl.cli.display import watch_sweep
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import BASES, Scale
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import Job, start
from dhocl.experiment.sweep.naming import run_name
from dhocl.methods import METHODS
from dhocl.nn.learner import TrainSettings

METRICS = ("AAUC", "FAUC", "MS")
SETS = ("cifar100", "cub200")
BACKBONE, HEADS = (1e-5, 1e-4, 3e-4), (1e-3, 3e-3)
MORE = {"onlora": [(1e-3, 3e-3), (3e-3, 1e-3), (3e-3, 3e-3)]}  # method -> rates of backbone and heads
LONG = {"ccl_dc", "joint"}  # over 5 times the cost of replay: a third as many images
TRAINED = [name for name, method in METHODS.items() if issubclass(method.settings, TrainSettings)]


def job(method: str, dataset: str, rates: tuple[float, float], seed: int, data: Path, out: Path) -> Job:
    base = BASES[Scale.mini][dataset]
    samples = base["samples"] // (6 if method in LONG else 2)
    rest = {"samples": samples, "test_samples": 1000, "eval_every": samples // 6, "data": str(data.absolute())}
    settings = dict(zip(("lr_backbone", "lr_heads"), rates, strict=True))
    config = RunConfig(method=method, dataset=dataset, holdout=True, seed=seed, settings=settings)
    config = dataclasses.replace(config, **base | rest)
    return Job(config, out / run_name(config))


Key = tuple[str, str, float, float]  # method, data set, rates of backbone and heads
Numbers = dict[str, float]


def read(table: Path) -> dict[Key, Numbers]:
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {
            (row["method"], row["dataset"], float(row["lr_backbone"]), float(row["lr_heads"])): {
                name: float(row[name]) for name in METRICS
            }
            for row in csv.DictReader(file)
        }


def write(table: Path, numbers: dict[Key, Numbers]) -> None:
    with table.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["method", "dataset", "lr_backbone", "lr_heads", *METRICS])
        for key, values in sorted(numbers.items()):
            writer.writerow([*key, *(f"{values[name]:.4f}" for name in METRICS)])


def main(
    methods: Annotated[list[str] | None, typer.Argument(help="All that train, if none is named.")] = None,
    data: Annotated[Path, typer.Option(help="Folder of the archives.")] = Path("data"),
    seed: Annotated[int, typer.Option(min=100, help="Reported seeds are below 100.")] = 100,
    workers: int = 0,
    out: Path = Path("runs/search"),
    table: Path = Path("docs/results/search.csv"),
) -> None:
    same = [(b, h) for b in BACKBONE for h in HEADS]
    grids = {method: same + MORE.get(method, []) for method in methods or TRAINED}
    numbers = read(table)
    jobs = {
        (method, dataset, *rates): job(method, dataset, rates, seed, data, out)
        for method, grid in grids.items()
        for rates in grid
        for dataset in SETS
        if (method, dataset, *rates) not in numbers
    }
    waiting = [each for each in jobs.values() if not each.finished]
    watch_sweep(start(waiting, "local", workers, None), waiting, quiet=False)
    for key, each in jobs.items():
        if each.finished:
            numbers[key] = {name: Record(each.folder).summary()[name] for name in METRICS}
    write(table, numbers)
    print("| method | backbone | heads | CIFAR-100 AAUC / FAUC / MS | CUB-200 AAUC / FAUC / MS | mean AAUC |")
    print("|---|---:|---:|---|---|---:|")
    for method, grid in grids.items():
        means = {
            rates: sum(numbers[method, dataset, *rates]["AAUC"] for dataset in SETS) / len(SETS)
            for rates in grid
            if all((method, dataset, *rates) in numbers for dataset in SETS)
        }
        for rates, mean in means.items():
            cells = [numbers[method, dataset, *rates] for dataset in SETS]
            shown = " | ".join(f"{cell['AAUC']:.1f} / {cell['FAUC']:.1f} / {cell['MS']:.2f}" for cell in cells)
            best = "**" if mean == max(means.values()) else ""
            print(f"| {method} | {rates[0]:g} | {rates[1]:g} | {shown} | {best}{mean:.1f}{best} |")


if __name__ == "__main__":
    typer.run(main)
