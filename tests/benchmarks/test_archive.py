"""benchmarks/archive.py: results made again from the packed runs are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dhocl import sweep
from dhocl.experiment.recipes import Scale
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import prepare
from dhocl.report import write_pages

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "archive.py"
SWEPT = ["prototype_structure"]


def call(verb: str, folder: Path, archive: Path) -> None:
    subprocess.run([sys.executable, str(SCRIPT), verb, str(folder), "--archive", str(archive)], check=True)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_from_packed_runs_are_the_same(tmp_path: Path) -> None:
    first, again, archive = tmp_path / "first" / "runs", tmp_path / "again" / "runs", tmp_path / "archive"
    assert not sweep(SWEPT, first)
    runs = sorted((first / "runs").iterdir())
    for run in runs:
        config = run / "config.json"
        config.write_text(config.read_text().replace('"data": null', '"data": "/home/me/data"'))
    call("pack", first, archive)
    packed = files(archive)
    assert sorted(name for name in packed if "recipes" not in name) == [f"{run.name}.tar.xz" for run in runs]
    call("pack", first, archive)
    assert files(archive) == packed

    call("unpack", again, archive)
    assert [Record(again / "runs" / run.name).config().data for run in runs] == ["DIR", "DIR"]
    assert not prepare(again, SWEPT, Scale.smoke, range(1), None), "nothing is left to run"
    write_pages(first, tmp_path / "pages")
    write_pages(again, tmp_path / "pages again")
    assert files(tmp_path / "pages") == files(tmp_path / "pages again")
