"""Imports go one way, so that a learner can not reach the truth and a reader finds the room of any line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dhocl

ROOT = Path(dhocl.__file__).parent
LAYERS = [
    {"errors", "rng", "allocator", "events"},
    {"taxonomy", "settings"},
    {"data", "backbones"},
    {"knowledge", "stream", "memory", "augment", "views", "optim", "losses", "metrics", "decode"},
    {"heads"},
    {"learner"},
    {"network"},
    {"objectives", "snapshot"},
    {"methods"},
    {"config", "evaluate", "checkpoint"},
    {"record", "recipes"},
    {"run", "classifier", "checks"},
    {"sweep", "logs", "service"},
    {"report"},
    {"display"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)
BLIND = {
    "memory",
    "augment",
    "views",
    "optim",
    "losses",
    "heads",
    "learner",
    "network",
    "objectives",
    "snapshot",
    "methods",
}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The rooms of dhocl that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "dhocl":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dhocl."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dhocl.")}
    return found


def test_every_room_has_its_layer() -> None:
    assert {room(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = room(path)
    for other in imports(path) - {own}:
        assert RANK[other] < RANK[own], f"{own} must not import {other}"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) in BLIND], ids=lambda path: path.stem)
def test_a_learner_can_not_reach_the_truth(path: Path) -> None:
    assert not imports(path) & {"data", "knowledge", "stream", "evaluate", "run"}
