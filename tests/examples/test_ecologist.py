"""The day of examples/ecologist.py, from the first model to a restored backup. The script checks its own claims."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dhocl import Classifier

DAY = Path(__file__).parents[2] / "examples" / "ecologist.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(DAY), *map(str, arguments)], capture_output=True, text=True)


def test_the_day_of_an_ecologist(tmp_path: Path) -> None:
    done = run(tmp_path / "day", "--backbone", "tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert [line.split()[2] for line in said if line.startswith("$ dhocl")] == [
        *("learn", "evaluate", "predict", "backup", "serve", "backup", "serve")
    ]
    assert [line.split("?")[0] for line in said if line.startswith("> ") and not line.startswith("> GET")] == [
        *("> POST /observations", "> PATCH /observations/1", "> DELETE /observations/1"),
        *("> POST /observations", "> DELETE /observations", "> POST /images"),
        next(line for line in said if line.startswith("> POST /images/")),
        *("> POST /predict", "> POST /predict"),
    ]

    day = tmp_path / "day"
    model, served = (Classifier.load(day / name) for name in ("birds", "backup"))
    assert len(model.taxonomy) == len(served.taxonomy) == 3 + 6 + 12
    page = json.loads((day / "birds" / "evaluation.json").read_text())
    assert [rank["level"] for rank in page["ranks"]] == ["script", "base", "character"]

    again = run(day)
    assert (again.returncode, again.stderr) == (2, f"{day} is not empty: name a new folder\n")


def test_it_stops_at_the_first_command_that_fails(tmp_path: Path) -> None:
    done = run(tmp_path / "day", "--backbone", "none")
    assert done.returncode == 2
    assert [line.split()[2] for line in done.stdout.splitlines() if line.startswith("$ dhocl")] == ["learn"]
    assert done.stderr.startswith("dhocl: there is no backbone 'none'")
    assert done.stderr.count("\n") == 1
