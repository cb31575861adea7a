"""The comparison in docs/results.md: er, acil, PredLA alone and halo on real images, three seeds.

    python benchmarks/spine.py run DATA       run what is not finished; DATA holds the published archives
    python benchmarks/spine.py collect        write the summaries of the runs to docs/results/spine.jsonl
    python benchmarks/spine.py table          print the tables from there

Runs are kept in runs/spine and go on where they were stopped. The published numbers were made with OMP_NUM_THREADS=1,
two runs side by side (`run DATA --only cifar100` beside `run DATA --only cub200`).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import typer

from dhocl.config import RunConfig
from dhocl.display import watch
from dhocl.record import Record
from dhocl.run import run as start

RUNS = Path("runs/spine")
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "spine.jsonl"
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
    "halo-unaligned": {"method": "halo", "settings": {"lambda": 0.0}},
}
COLUMNS = {"AAUC": 1, "FAUC": 1, "MS": 3, "FFAcc": 1, "FAAcc": 1, "ms_mistakes": 3}  # and their digits

app = typer.Typer(add_completion=False)
Lines = list[dict[str, Any]]


@app.command()
def run(data: Path, only: str | None = None) -> None:
    for dataset, options in DATASETS.items():
        for seed in SEEDS if only in (None, dataset) else ():
            for row, method in ROWS.items():
                config = RunConfig(dataset=dataset, data=str(data), seed=seed, **options, **method)
                record = Record(RUNS / f"{dataset}-{row}-{seed}")
                if not record.finished:
                    watch(start(config, record.folder, record.exists), config, record.folder, quiet=False)


@app.command()
def collect() -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w") as file:
        for dataset in DATASETS:
            for row in ROWS:
                for seed in SEEDS:
                    record = Record(RUNS / f"{dataset}-{row}-{seed}")
                    if record.finished:
                        about = {name: value for name, value in record.describe().items() if name != "config"}
                        config = record.config().to_json() | {
                            "data": None
                        }  # where the archives lay is nobody's concern
                        line = {"dataset": dataset, "row": row, "seed": seed, "config": config} | about
                        print(json.dumps(line | {"summary": record.summary()}), file=file)


@app.command()
def table() -> None:
    lines: Lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    for dataset in DATASETS:
        for prefix, title in (("", "each level by itself"), ("path.", "path decoding")):
            print(f"\n**{dataset}, {title}**\n")
            print_table([line for line in lines if line["dataset"] == dataset], prefix)
        print()
        print_structure([line for line in lines if line["dataset"] == dataset])


def print_table(lines: Lines, prefix: str) -> None:
    levels = lines[0]["levels"]
    print("|", " | ".join(["method", *COLUMNS, *(f"{level} AUC" for level in levels), "samples/s"]), "|")
    print("|---" * (len(COLUMNS) + len(levels) + 2) + "|")
    for row in ROWS:
        found = [line["summary"] for line in lines if line["row"] == row]
        if found:
            cells = [spread([s[prefix + name] for s in found], digits) for name, digits in COLUMNS.items()]
            cells += [spread([s[f"{prefix}level_auc"][str(h)] for s in found], 1) for h in range(len(levels))]
            print("|", " | ".join([row, *cells, f"{mean(s['samples_per_second'] for s in found):.0f}"]), "|")


def print_structure(lines: Lines) -> None:
    """How well distances between prototypes mirror the tree's, at the end."""
    for row in ROWS:
        found = [line["summary"]["structure"] for line in lines if line["row"] == row]
        for matrix in sorted({key for structure in found for key, value in structure.items() if value is not None}):
            level = lines[0]["levels"][int(matrix.split(".")[1])]
            print(f"- {row}, {level}: correlation {spread([s[matrix] for s in found], 2)}")


def spread(values: list[float], digits: int) -> str:
    """Mean ± standard deviation over the seeds."""
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


if __name__ == "__main__":
    app()
