"""The examples do what their READMEs say."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from dhocl.core.taxonomy import UNKNOWN
from dhocl.data import Selection, check
from dhocl.service.served import ServedModel

RUN = Path(__file__).parents[2] / "examples" / "biodiversity" / "run.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(RUN), *map(str, arguments)], capture_output=True, text=True)


def test_biodiversity(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--observations", 90, "--backbone", "tiny", "--port", 0, "--no-stay", "--out", out)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("after ")]
    assert len(told) > 1
    assert told[-1].startswith("after 90, ")

    # Accuracy at the finest rank, from what the journal has noted of each observation.
    with sqlite3.connect(out / "model" / "journal.sqlite") as journal:
        rows = journal.execute("SELECT content, outcome FROM entries WHERE kind = 'observation'").fetchall()
    contents, outcomes = ([json.loads(row[place]) for row in rows] for place in (0, 1))
    species = [o["predicted"] for c, o in zip(contents, outcomes, strict=True) if c["rank"] == "species"]
    share = sum(bool(predicted and predicted["right"]) for predicted in species) / len(species)
    assert told[-1].endswith(f"species {100 * share:.1f} %")
    assert {content["rank"] for content in contents} == {"family", "genus", "species"}

    # The tree that grew is true, and what was posted by an old name goes by the accepted one.
    truth = check("glyphs", Selection()).tree
    model = ServedModel.load(out / "model" / "checkpoints")
    assert model is not None
    tree = model.taxonomy
    links = {
        (child, tree.labels[tree.parent(tree.id(child))]) for child in tree if tree.parent(tree.id(child)) != UNKNOWN
    }
    above = {(label, truth.labels[up]) for label in truth for up in truth.lineage(truth.id(label))[1:]}
    assert len(links) > 5
    assert links <= above
    old = {content["name"] for content in contents[:45] if len(content["name"]) == 1}  # later ones may not be asked yet
    assert old
    assert old.isdisjoint(label.name for label in tree)

    again = run("--observations", 90, "--out", out)
    assert (again.returncode, again.stderr) == (2, f"{out} holds an archive already: name a new folder\n")
