"""Which package may import which. docs/architecture.md draws it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import dhocl

ROOT = Path(dhocl.__file__).parent
MAY_IMPORT = {
    "core": set(),
    "nn": {"core"},
    "methods": {"core", "nn"},
    "data": {"core"},
    "knowledge": {"core", "data"},
    "stream": {"core", "data"},
    "model": {"core", "nn", "methods", "knowledge"},
    "checks": {"core", "nn", "knowledge"},
    "experiment": {"core", "nn", "methods", "data", "knowledge", "stream", "model"},
    "classifier": {"core", "nn", "methods", "data", "knowledge", "model", "experiment"},
    "bulk": {"core", "nn", "methods", "data", "knowledge", "model", "classifier"},
    "report": {"core", "experiment"},
    "service": {"core", "data", "knowledge", "model", "classifier"},
    "cli": {"core", "nn", "methods", "data", "experiment", "classifier", "bulk", "report", "service"},
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The packages of dhocl that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "dhocl":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dhocl."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dhocl.")}
    return found


def test_imports_have_no_cycle() -> None:
    order = list(MAY_IMPORT)
    assert all(order.index(other) < place for place, name in enumerate(order) for other in MAY_IMPORT[name])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_package_may(path: Path) -> None:
    assert imports(path) - {package(path)} <= MAY_IMPORT[package(path)]


STATED = [path for path in ROOT.rglob("*.py") if "__all__" in path.read_text()]


@pytest.mark.parametrize("path", STATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_that_a_module_offers_exist(path: Path) -> None:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
