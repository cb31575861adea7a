"""benchmarks/mutants.py, on a package of its own."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

CODE = '''\
"""Twice is never a number to change in a docstring: 2."""


def weighed(x: float, y: float = 0.5) -> float:
    return max(x, y) + 3 * x


def capped(x: float) -> float:
    if x < 10:
        return x
    return 10
'''
TESTS = """\
from dhocl.metrics import capped, weighed


def test_weighed():
    assert weighed(1, 2) == 5
    assert weighed(0.25) == 1.25


def test_capped():
    assert capped(7) == 7
    assert capped(11) == 10
"""
MUTANTS = {
    "def weighed(x: float, y: float=0.5) -> float: => def weighed(x: float, y: float=1.0) -> float:",
    "return max(x, y) + 3 * x => return max(x, y) - 3 * x",
    "return max(x, y) + 3 * x => return max(x, y)",
    "return max(x, y) + 3 * x => return 3 * x",
    "return max(x, y) + 3 * x => return min(x, y) + 3 * x",
    "return max(x, y) + 3 * x => return max(x, y) + 3 / x",
    "return max(x, y) + 3 * x => return max(x, y) + 6 * x",
    "if x < 10: => if x <= 10:",
    "if x < 10: => if x >= 10:",
    "if x < 10: => if x < 20:",
    "return 10 => return 20",
}
SURVIVOR = "metrics.py: if x < 10: => if x <= 10:"


def names(source: str) -> set[str]:
    return {mutant.name for mutant in runpy.run_path(str(BENCHMARKS / "mutation.py"))["mutants"](source)}


def test_every_mutant_of_a_source() -> None:
    assert names(CODE) == MUTANTS


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("a = b and c", ["a = b or c"]),
        ("a = not b", ["a = b"]),
        ("a = -b", ["a = b"]),
        ("a = True", ["a = False"]),
        ("a = 0", ["a = 1"]),
        ("a = 1e-12", ["a = 1.0"]),
        ("a = b is None", ["a = b is not None"]),
        ("a = b if c else d", ["a = b", "a = d"]),
        ("a = b.detach()", ["a = b"]),
        ("a = b.amax(c)", ["a = b.amin(c)"]),
        ("a = f(b, c=d)", ["a = f(b)"]),
        ("a += b", ["a -= b", "pass"]),
        ("a.b = c", ["pass"]),
        ("f(a)", ["pass"]),
        ("raise ValueError(1 + 2)", ["pass"]),
        ("if a:\n    b = c", ["if not a:"]),
        ("def f():\n    return g(a, b)", ["return a"]),
        ("assert a == 1", []),
        ("a = zip(b, c, strict=True)", []),
        ("from a import b", []),
        ("a: int | None = b", []),
        ("f'{1 + 2}'", []),
    ],
)
def test_operators(line: str, changed: list[str]) -> None:
    old = line.split("\n")[-1].strip() if line.startswith("def") else line.split("\n")[0]
    assert names(line) == {f"{old} => {new}" for new in changed}


def test_equal_mutants_are_numbered() -> None:
    assert names("f(a)\nf(a)") == {"f(a) => pass", "f(a) => pass #2"}


def test_a_head_has_the_tests_of_the_methods_that_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use, head = "from dhocl.methods import {}", "from dhocl.nn.heads import ridge"
    for name, text in {
        "src/dhocl/nn/heads/ridge.py": "",
        "src/dhocl/nn/heads/linear.py": "",
        "src/dhocl/methods/acil.py": "from dhocl.nn.heads.ridge import solve",
        "src/dhocl/methods/er.py": "from dhocl.nn.heads.linear import Linear",
        "tests/nn/test_ridge.py": head,
        "tests/nn/test_linear.py": head,
        "tests/nn/test_precision.py": head,
        "tests/methods/test_acil.py": use.format("acil"),
        "tests/methods/test_er.py": use.format("er") + "\n" + head,
        "tests/model/test_merging.py": use.format("acil"),
        "tests/service/test_service.py": use.format("acil"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    (module,) = runpy.run_path(str(BENCHMARKS / "mutants.py"))["find_modules"](tmp_path, ["nn/heads/ridge.py"])
    assert [path.stem for path in module.tests] == ["test_ridge", "test_acil", "test_merging", "test_precision"]


def test_survivors_are_listed_excused_and_run_again_when_the_tests_change(tmp_path: Path) -> None:
    for name, text in {
        "src/dhocl/__init__.py": "",
        "src/dhocl/metrics.py": CODE,
        "tests/test_metrics.py": TESTS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    log = tmp_path / "log.jsonl"

    def run() -> tuple[int, str]:
        command = [sys.executable, BENCHMARKS / "mutants.py", "metrics.py", "--root", tmp_path, "--out", log]
        done = subprocess.run(command, capture_output=True, text=True)
        assert not done.stderr
        return done.returncode, done.stdout

    status, shown = run()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["mutant"] for line in lines} == {f"metrics.py: {name}" for name in MUTANTS}
    assert [line["mutant"] for line in lines if line["result"] != "killed"] == [SURVIVOR]
    (by,) = (line["by"] for line in lines if line["mutant"].endswith("return 20"))
    assert by.endswith("test_metrics.py::test_capped")
    assert f"Survivors:\n{SURVIVOR}\n" in shown
    assert "metrics.py                            11      10   90.9%" in shown
    assert "11/11  0 min left" in shown
    assert status == 0, "10 of 11 are enough"

    (tmp_path / "tests" / "test_metrics.py").write_text(TESTS.replace("capped(11)", "capped(12)"))
    run()
    assert [json.loads(line)["mutant"] for line in log.read_text().splitlines()[11:]] == [SURVIVOR], "the rest is known"

    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mutants_excused.txt").write_text(
        f"{SURVIVOR}  # both return 10\nmetrics.py: gone => forgotten  # was once\n"
    )
    status, shown = run()
    assert "excused, but not a mutant any more: metrics.py: gone => forgotten" in shown
    assert "metrics.py                            10      10  100.0%" in shown
    assert len(log.read_text().splitlines()) == 12

    (tmp_path / "benchmarks" / "mutants_excused.txt").unlink()
    (tmp_path / "src" / "dhocl" / "metrics.py").write_text(
        CODE.replace("3 * x", "3 * x  # the same") + "\n\nLEFT = 1\n"
    )
    assert run()[0] == 1, "10 of 12 are too few"
