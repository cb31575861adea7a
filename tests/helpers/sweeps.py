"""Cells of a recipe small enough for a test, and the curves that they leave."""

from __future__ import annotations

from pathlib import Path

from dhocl.experiment.config import RunConfig
from dhocl.experiment.recipes import GridCell

TINY = {
    "backbone": "tiny",
    "image_size": 32,
    "samples": 240,
    "test_samples": 220,
    "groups": 2,
    "buffer": 20,
    "batch": 16,
}


def cells(*methods: str, **more: object) -> list[GridCell]:
    return [GridCell("glyphs", name, RunConfig(name, **TINY | {"eval_every": 80} | more)) for name in methods]


def curves(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("runs/*/curve.jsonl"))}
