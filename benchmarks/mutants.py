"""Change the code in one place at a time and count the changes that no test notices.

    python benchmarks/mutants.py [losses metrics.py methods/er.py ...] [--per-file 30] [--seed 0] [--workers 2]

Mutants of src/dhocl (methods, losses, heads, memory, decode, metrics unless named) are sampled by seed. Each runs the
tests of its module: those that import it, for a head also those of the methods that use it, and for a method its part
of the conformance suite. This process imports torch once and forks for every mutant. The mutant's source is injected
at import; subprocesses of tests do not see it.

Results are appended to --out. Started again, it runs what is new: mutants of changed modules, and survivors if any test
has changed. benchmarks/mutants_excused.txt lists mutants that change no behaviour, one a line:
`file: old line => new line  # reason`. Below 90 % killed the exit status is 1.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from mutation import Injected, Mutant, mutants, trial

ROOT = Path(__file__).resolve().parents[1]
MODULES = ["nn/losses", "experiment/metrics.py", "core/decode.py", "nn/memory.py", "nn/heads", "methods"]
PRELOADED = ("torch.distributed.tensor", "scipy.stats", "sklearn.linear_model", "PIL.ImageFont")
ENOUGH = 0.9
AT_METHODS = ("bulk", "methods", "model")  # folders of tests that run for the heads of a method, too


class Module(NamedTuple):
    """A file of src/dhocl, and the tests that its mutants have to pass."""

    key: str  # relative to src/dhocl
    path: Path
    tests: tuple[Path, ...]

    def trial(self, source: str, temp: Path, limit: int, kills: Counter[str]) -> int:
        name = "dhocl." + self.key.removesuffix(".py").replace("/", ".")
        return trial(Injected(name, self.path, source), self.tests, temp, limit, kills)


def find_modules(root: Path, names: list[str]) -> Iterator[Module]:
    """Its tests import it, a method that does, or else its package. Their names are not of another head or method."""
    package, imports = root / "src" / "dhocl", {p: imported(p) for p in sorted((root / "tests").rglob("test_*.py"))}
    methods = {p.stem: imported(p) for p in package.glob("methods/*.py")}
    taken = {f"test_{stem}" for stem in [*methods, *(p.stem for p in package.glob("nn/heads/*.py"))]}
    for path in (p for n in names for p in (sorted((package / n).glob("[!_]*.py")) or [package / n])):
        parts = ["dhocl", *path.relative_to(package).with_suffix("").parts]
        name, users = ".".join(parts), []
        if parts[1:3] == ["nn", "heads"]:
            users = [stem for stem, found in methods.items() if name in found]
        own = {f"test_{stem}" for stem in [path.stem, *users]}

        def tests_of(prefix: str, *, own: set[str] = own) -> list[Path]:
            return [p for p, found in imports.items() if prefix in found and (p.stem in own or p.stem not in taken)]

        tests = tests_of(name)
        tests += [root / "tests" / "methods" / "test_methods.py"] if parts[1] == "methods" else []
        tests += [p for user in users for p in tests_of(f"dhocl.methods.{user}") if p.parent.name in AT_METHODS]
        tests = sorted(set(tests or tests_of(".".join(parts[:-1]))), key=lambda p: (p.stem != f"test_{path.stem}", p))
        yield Module("/".join(parts[1:]) + ".py", path, tuple(tests))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, or imports from, and the packages that they are in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = [".".join([*start, alias.name]).split(".") for alias in node.names]
            found |= {".".join(name[:n]) for name in names for n in range(1, len(name) + 1)}
    return found


def forked(jobs: Sequence[Callable[[], int]], workers: int) -> Iterator[tuple[int, int, float, int]]:
    """As they end: the number of a job, its status (negative for a signal), CPU seconds, process."""
    running: dict[int, int] = {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        while waiting and len(running) < workers:
            number, job = waiting.pop(0)
            if not (pid := os.fork()):
                status = 3
                try:
                    status = job()
                finally:
                    os._exit(status)
            running[pid] = number
        pid, status, used = os.wait4(-1, 0)
        yield running.pop(pid), os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, pid


class Results:
    """A JSON object a line for each mutant that ran."""

    def __init__(self, file: Path, root: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file, self.tests = file, digest(*sorted((root / "tests").rglob("*.py")))
        lines = map(json.loads, file.read_text().splitlines() if file.exists() else [])
        self.known = {(line["mutant"], line["source"]): line for line in lines}

    def of(self, mutant: Mutant, module: Module) -> str | None:
        line = self.known.get((mutant.name, digest(module.path)), {"result": "survived", "tests": None})
        return None if line["result"] == "survived" and line["tests"] != self.tests else line["result"]

    def add(self, mutant: Mutant, module: Module, **more: Any) -> None:
        line = {"mutant": mutant.name, "source": digest(module.path), "tests": self.tests, **more}
        self.known[line["mutant"], line["source"]] = line
        with self.file.open("a") as out:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def run(module: Module, pending: list[Mutant], results: Results, workers: int, temp: Path) -> Iterator[None]:
    """The module as it is, which must pass and shows how long its tests take, and then its mutants."""
    kills = Counter[str]()
    ((_, status, usual, _),) = forked([partial(module.trial, module.path.read_text(), temp, 3600, kills)], 1)
    if status != 0:
        sys.exit(f"{module.key}: its tests fail without a mutant (status {status}): {' '.join(map(str, module.tests))}")
    jobs = [partial(module.trial, mutant.source(), temp, int(10 + 3 * usual), kills) for mutant in pending]
    for number, status, seconds, pid in forked(jobs, workers):
        by = f"status {status}" if status != 1 else (temp / f"{pid}.killer").read_text()
        kills[by] += 1
        result = {0: "survived", -signal.SIGXCPU: "timeout", -signal.SIGALRM: "timeout"}.get(status, "killed")
        results.add(pending[number], module, result=result, by=by, seconds=round(seconds, 1))
        yield


def choose(module: Module, per_file: int, seed: int, excused: dict[str, str]) -> list[Mutant]:
    every = [mutant._replace(name=f"{module.key}: {mutant.name}") for mutant in mutants(module.path.read_text())]
    for stale in {name for name in excused if name.startswith(f"{module.key}: ")} - {mutant.name for mutant in every}:
        print(f"excused, but not a mutant any more: {stale}")
    sample = random.Random(f"{seed} {module.key}").sample(every, min(per_file, len(every)))
    return [mutant for mutant in sample if mutant.name not in excused]


def main(
    names: Annotated[list[str] | None, typer.Argument()] = None,
    per_file: int = 30,
    seed: int = 0,
    workers: int = 2,
    out: Path = ROOT / "runs" / "mutants.jsonl",
    root: Path = ROOT,
) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.path.insert(0, str(root / "src"))
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # or every collection in a fork copies all of it
    results = Results(out, root)
    excuses = root / "benchmarks" / "mutants_excused.txt"
    lines = excuses.read_text().splitlines() if excuses.exists() else []
    excused = {name: reason for name, mark, reason in (line.partition("  # ") for line in lines) if mark and reason}
    chosen = {m: choose(m, per_file, seed, excused) for m in find_modules(root, names or MODULES)}
    pending = {m: [mutant for mutant in some if results.of(mutant, m) is None] for m, some in chosen.items()}
    total, ended, start = sum(map(len, pending.values())), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temp:
        for module in filter(pending.get, pending):
            for ended, _ in enumerate(run(module, pending[module], results, workers, Path(temp)), ended + 1):  # noqa: B020
                left = (time.monotonic() - start) / ended * (total - ended) / 60
                print(f"{ended}/{total}  {left:.0f} min left  {module.key}", flush=True)
    alive = {m: [mutant.name for mutant in some if results.of(mutant, m) == "survived"] for m, some in chosen.items()}
    rows = [(m.key, len(some), len(some) - len(alive[m])) for m, some in chosen.items()]
    total, killed = (sum(column) for column in list(zip(*rows, strict=True))[1:])
    print("\nSurvivors:", *(name for some in alive.values() for name in some), "", sep="\n")
    for row in [("file", "mutants", "killed"), *rows, ("all", total, killed)]:
        print("{:32} {:>7} {:>7}".format(*row), f"{row[2] / max(1, row[1]):7.1%}" if row[0] != "file" else "  share")
    sys.exit(killed < ENOUGH * total)


if __name__ == "__main__":
    typer.run(main)
