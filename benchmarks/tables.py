"""The tables of docs/results.md.

    python benchmarks/tables.py run STUDY --data DIR     run what is not finished; DIR holds the published archives
    python benchmarks/tables.py collect STUDY            write the summaries of its runs to docs/results/STUDY.jsonl
    python benchmarks/tables.py table STUDY              print the tables from there

Runs are kept in runs/tables, are shared by the studies and go on where they were stopped. The published numbers were
made with OMP_NUM_THREADS=1, two runs side by side (`--only cifar100` beside `--only glyphs`, and so on).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import typer

from dhocl.config import RunConfig
from dhocl.display import watch
from dhocl.methods import METHODS
from dhocl.record import Record
from dhocl.run import run as start

RUNS = Path("runs/tables")
RESULTS = Path(__file__).parent.parent / "docs" / "results"
DATASETS: dict[str, dict[str, Any]] = {
    "glyphs": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
    "cifar100": {"samples": 6000, "test_samples": 2000, "image_size": 64, "buffer": 200},
    "cub200": {"test_samples": 2000, "image_size": 96, "buffer": 200},
}
LOSSES = ("multi_ce", "hxe", "soft_ce", "hcon")  # beside haf, which is the default of er
ROWS: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in METHODS},
    "predla": {"method": "halo", "settings": {"hpr": False}},
    "halo-unaligned": {"method": "halo", "settings": {"lambda": 0.0}},
    **{f"er {loss}": {"method": "er", "settings": {"loss": loss}} for loss in LOSSES},
    **{
        f"{method} {groups} groups": {"method": method, "groups": groups}
        for method in ("er", "acil", "gacil", "halo")
        for groups in (5, 50)
    },
}


class Study(NamedTuple):
    datasets: tuple[str, ...]
    rows: tuple[str, ...]
    decodings: tuple[str, ...] = ("",)  # prefixes of the scores
    by_level: bool = False


STUDIES = {
    "spine": Study(
        ("cifar100", "cub200"), ("er", "acil", "predla", "halo", "halo-unaligned"), ("", "path."), by_level=True
    ),
    "methods": Study(("glyphs", "cifar100"), tuple(METHODS)),
    "losses": Study(("glyphs", "cifar100"), ("er", *(f"er {loss}" for loss in LOSSES))),
    "groups": Study(
        ("cifar100",),
        tuple(f"{method}{g}" for method in ("er", "acil", "gacil", "halo") for g in (" 5 groups", "", " 50 groups")),
    ),
}
TITLES = {"": "each level by itself", "path.": "path decoding"}
COLUMNS = {"AAUC": 1, "FAUC": 1, "MS": 3, "FFAcc": 1, "FAAcc": 1, "ms_mistakes": 3}  # and their digits
SPENT = {"cost_vs_er": 2, "samples_per_second": 0}

app = typer.Typer(add_completion=False)
Lines = list[dict[str, Any]]


@app.command()
def run(study: str, data: Path | None = None, only: str | None = None, seeds: int = 3, rows: str = "") -> None:
    chosen = rows.split(",") if rows else STUDIES[study].rows
    for seed in range(seeds):
        for dataset in STUDIES[study].datasets if only is None else (only,):
            for row in chosen:
                folder = None if data is None or dataset == "glyphs" else str(data)
                config = RunConfig(dataset=dataset, data=folder, seed=seed, **DATASETS[dataset] | ROWS[row])
                record = _record(dataset, row, seed)
                if not record.finished:
                    watch(start(config, record.folder, bool(record.curve())), config, record.folder, quiet=False)


@app.command()
def collect(study: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{study}.jsonl").open("w") as file:
        for dataset in STUDIES[study].datasets:
            for row in STUDIES[study].rows:
                seed = 0
                while (record := _record(dataset, row, seed)).finished:
                    about = {name: value for name, value in record.describe().items() if name != "config"}
                    config = record.config().to_json() | {"data": None}  # where the archives lay is nobody's concern
                    line = {"dataset": dataset, "row": row, "seed": seed, "config": config} | about
                    print(json.dumps(line | {"summary": record.summary()}), file=file)
                    seed += 1


@app.command()
def table(study: str) -> None:
    every: Lines = [json.loads(line) for line in (RESULTS / f"{study}.jsonl").read_text().splitlines()]
    for dataset in STUDIES[study].datasets:
        lines = [line for line in every if line["dataset"] == dataset]
        for prefix in STUDIES[study].decodings if lines else ():
            print(f"\n**{dataset}, {TITLES[prefix]}**\n")
            print_table(lines, prefix, STUDIES[study])
        print_structure(lines)


def print_table(lines: Lines, prefix: str, study: Study) -> None:
    levels = lines[0]["levels"] if study.by_level else []
    spent = {name: digits for name, digits in SPENT.items() if name in lines[0]["summary"]}
    heads = ["method", *COLUMNS, *(f"{level} AUC" for level in levels), *spent, "seeds"]
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads) + "|")
    for row in study.rows:
        found = [line["summary"] for line in lines if line["row"] == row]
        if found:
            cells = [spread([s[prefix + name] for s in found], digits) for name, digits in COLUMNS.items()]
            cells += [spread([s[f"{prefix}level_auc"][str(h)] for s in found], 1) for h in range(len(levels))]
            cells += [f"{mean(s[name] for s in found):.{digits}f}" for name, digits in spent.items()]
            print("|", " | ".join([row, *cells, str(len(found))]), "|")


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


def _record(dataset: str, row: str, seed: int) -> Record:
    return Record(RUNS / f"{dataset}-{row.replace(' ', '-')}-{seed}")


if __name__ == "__main__":
    app()
