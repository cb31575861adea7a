"""The comparison in docs/results.md: er, acil, PredLA alone and halo on real images, three seeds.

    python benchmarks/spine.py DATA                 run what is not there yet, then print the tables
    python benchmarks/spine.py DATA --table         only the tables

DATA holds the published archives. Runs are kept in runs/spine and go on where they were stopped. Set OMP_NUM_THREADS=1
and start the script twice with different --only to use two cores.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import typer

from dhocl.config import RunConfig
from dhocl.display import watch
from dhocl.record import Record
from dhocl.run import run

SEEDS = (0, 1, 2)
DATASETS: dict[str, dict[str, Any]] = {
    "cifar100": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
    "cub200": {"test_samples": 2000, "image_size": 96, "buffer": 200},
}
ROWS: dict[str, dict[str, Any]] = {
    "er": {"method": "er"},
    "acil": {"method": "acil"},
    "predla": {"method": "halo", "settings": {"hpr": False}},
    "halo": {"method": "halo"},
    "halo, λ = 0": {"method": "halo", "settings": {"lambda": 0.0}},
}
COLUMNS = ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc", "ms_mistakes")


def main(
    data: Path,
    out: Path = Path("runs/spine"),
    table: Annotated[bool, typer.Option("--table")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Data sets to run.")] = None,
) -> None:
    for dataset, options in DATASETS.items():
        if not table and dataset in (only or DATASETS):
            for seed in SEEDS:
                for row, method in ROWS.items():
                    config = RunConfig(dataset=dataset, data=str(data), seed=seed, **options, **method)
                    folder = out / name(dataset, row, seed)
                    if not Record(folder).finished:
                        watch(run(config, folder, Record(folder).exists), config, folder, quiet=False)
        for prefix, title in (("", "each level by itself"), ("path.", "path decoding")):
            print(f"\n**{dataset}, {title}**\n")
            print_table(out, dataset, prefix)
        print_structure(out, dataset)


def name(dataset: str, row: str, seed: int) -> str:
    return f"{dataset}-{row.replace(', λ = ', '-lambda')}-{seed}"


def print_table(out: Path, dataset: str, prefix: str) -> None:
    levels: list[str] = []
    for row in ROWS:
        done = finished(out, dataset, row)
        if not done:
            continue
        if not levels:
            levels = done[0].describe()["levels"]
            print("|", " | ".join(["method", *COLUMNS, *(f"{level} AUC" for level in levels), "samples/s"]), "|")
            print("|---" * (len(COLUMNS) + len(levels) + 2) + "|")
        summaries = [record.summary() for record in done]
        cells = [spread([s[prefix + c] for s in summaries], 3 if "M" in c.upper()[:1] else 1) for c in COLUMNS]
        cells += [spread([s[f"{prefix}level_auc"][str(h)] for s in summaries], 1) for h in range(len(levels))]
        print("|", " | ".join([row, *cells, f"{mean(s['samples_per_second'] for s in summaries):.0f}"]), "|")


def print_structure(out: Path, dataset: str) -> None:
    """How well distances between prototypes mirror the tree's."""
    for row in ROWS:
        found = [record.summary()["structure"] for record in finished(out, dataset, row)]
        for matrix in sorted({key for structure in found for key, value in structure.items() if value is not None}):
            print(f"\n{dataset}, {row}: correlation of {matrix} with the tree {spread([s[matrix] for s in found], 2)}")


def finished(out: Path, dataset: str, row: str) -> list[Record]:
    records = [Record(out / name(dataset, row, seed)) for seed in SEEDS]
    return [record for record in records if record.finished]


def spread(values: list[float], digits: int) -> str:
    """Mean ± standard deviation over the seeds."""
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


if __name__ == "__main__":
    typer.run(main)
