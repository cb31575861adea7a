"""Single settings against the default, on held-out training images: paired differences over seeds.

    python benchmarks/choices.py --data DIR [METHOD ...] [--seeds 3] [--out runs/choices]

Streams have half the length of mini scale: 3,000 images of CIFAR-100 and of glyphs at 64 px, 1,500 of CUB-200 at 96 px.
Seeds count from 100, so no reported seed is used. DIR holds the published archives. Repeat the command to go on.

Prints a table per method, and writes every run to docs/results/choices.csv. What is in it is not run again.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dhocl.cli.display import watch_sweep
from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import BASES, Scale
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import Job, start
from dhocl.experiment.sweep.naming import run_name
from dhocl.report.paired import difference

METRICS = ("AAUC", "FAUC", "MS")
SETS = ("cifar100", "cub200", "glyphs")
FIRST = 100
Settings = dict[str, Any]
CHOICES: dict[str, list[Settings]] = {
    "halo": [
        {"gamma": 1.0},
        {"batch_statistics": True},
        {"mixing": "replay"},
        {"linear_tau": 1.0},
        {"linear_tau": 4.0},
        {"prototype_tau": 1.0},
        {"prototype_tau": 4.0},
        {"analytic_tau": 0.15},
        {"analytic_tau": 0.6},
        {"printed": True},
        {"normalise": False},
    ],
    "acil": [
        *({"gamma": gamma} for gamma in (0.1, 1.0, 3.0)),
        *({"normalise": False, "gamma": gamma} for gamma in (1.0, 100.0, 1000.0)),
    ],
    "amber": [
        *({"gamma": gamma} for gamma in (0.25, 2.0)),
        *({"balance": exponent} for exponent in (0.0, 0.25, 0.75)),
        *({"recency": samples} for samples in (12.0, 50.0)),
        *({"window": samples} for samples in (256, 1024)),
        *({"refresh": samples} for samples in (64, 256)),
        *({"calibration": samples} for samples in (256, 1024)),
        {"adapt": False},
        {"stages": 0.0},
        {"mirror": False},
        {"completion": "never"},
        {"doubt": False},
    ],
    "amber_plus": [
        *({"start": samples} for samples in (512, 2048)),
        {"side": 2.0, "mirror": False},
    ],
}
EXTENDED = {"amber_plus": "amber"}  # methods that are compared with another one, too


class Table:
    """A CSV file with a line per run: method, settings as JSON, data set, seed and metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers: dict[tuple[str, str, str, int], dict[str, float]] = {}
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    key = row["method"], row["settings"], row["dataset"], int(row["seed"])
                    self.numbers[key] = {name: float(row[name]) for name in METRICS}

    def write(self) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["method", "settings", "dataset", "seed", *METRICS])
            for key, values in sorted(self.numbers.items()):
                writer.writerow([*key, *(f"{values[name]:.4f}" for name in METRICS)])

    def compared(self, row: tuple[str, str], base: tuple[str, str], dataset: str) -> str:
        """Paired differences to another row (method, settings), with half of their 95 % interval."""
        cells = []
        for name, digits in zip(METRICS, (1, 1, 2), strict=True):
            mine, default = (self._values((*own, dataset), name) for own in (row, base))
            if (gap := difference(mine, default)) is None:
                return "-"
            around = "" if gap.half is None else f" ± {gap.half:.{digits}f}"
            cells.append(f"{gap.mean:+.{digits}f}{around}")
        return " / ".join(cells)

    def _values(self, row: tuple[str, str, str], metric: str) -> dict[tuple[int, str], float]:
        return {(key[3], ""): values[metric] for key, values in self.numbers.items() if key[:3] == row}


def job(method: str, settings: Settings, dataset: str, seed: int, data: Path, out: Path) -> Job:
    base = BASES[Scale.mini][dataset]
    samples = base["samples"] // 2
    place = None if dataset == "glyphs" else str(data.absolute())
    rest = {"samples": samples, "test_samples": 1000, "eval_every": samples // 12, "data": place}
    config = RunConfig(method=method, dataset=dataset, holdout=True, seed=seed, settings=settings)
    config = dataclasses.replace(config, **base | rest)
    return Job(config, out / run_name(config))


def main(
    methods: Annotated[list[str] | None, typer.Argument(help="All of the table, if none is named.")] = None,
    data: Annotated[Path, typer.Option(help="Folder of the archives.")] = Path("data"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 100.")] = 3,
    workers: int = 0,
    out: Path = Path("runs/choices"),
    table: Path = Path("docs/results/choices.csv"),
) -> None:
    known = Table(table)
    grid = {method: [{}, *CHOICES[method]] for method in methods or CHOICES}
    jobs = {
        (method, json.dumps(settings), dataset, seed): job(method, settings, dataset, seed, data, out)
        for seed in range(FIRST, FIRST + seeds)
        for dataset in SETS
        for method, choices in grid.items()
        for settings in choices
    }
    waiting = [each for key, each in jobs.items() if key not in known.numbers and not each.finished]
    try:
        watch_sweep(start(waiting, "local", workers, None), waiting, quiet=False)
    finally:  # also when it is interrupted
        for key, each in jobs.items():
            if each.finished:
                known.numbers[key] = {name: Record(each.folder).summary()[name] for name in METRICS}
        known.write()
    for method, choices in grid.items():
        print(f"\n| `{method}` with | {' | '.join(SETS)} |\n|---|{'---|' * len(SETS)}")
        pairs = [(settings, method) for settings in choices[1:]]
        if method in EXTENDED:
            pairs += [(settings, EXTENDED[method]) for settings in choices]
        for settings, base in pairs:
            name = ", ".join(f"{key}={value}" for key, value in settings.items()) or "defaults"
            label = f"`{name}`" + (f", instead of `{base}`" if base != method else "")
            cells = [known.compared((method, json.dumps(settings)), (base, "{}"), dataset) for dataset in SETS]
            print(f"| {label} | {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
