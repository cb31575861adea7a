"""Write folders of small services, to be opened by later versions: `python -m tests.helpers.folder tests/data`.

`folders` gets one of each of `METHODS`, and `queued` one whose service was killed while entries were queued. Those that
exist are kept. Make them whenever `checkpoint.FORMAT` or the journal's `VERSION` changes, and keep the earlier ones.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from dhocl import Classifier
from dhocl.checks import LEAVES, exam
from dhocl.core import checkpoint
from dhocl.service import journal_format
from dhocl.service.bodies import Limits
from dhocl.service.journal import Post
from dhocl.service.keeper import Pace
from dhocl.service.served import Asked
from dhocl.service.service import Service
from tests.helpers.serving import TREE, as_post, examples, leave, post, started

EXAM, _ = exam()  # ten images of each leaf
CURRENT = f"format-{checkpoint.FORMAT}-journal-{journal_format.VERSION}"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # by name of the folder, with settings that keep it small
    CURRENT: ("amber", {"stages": 0.0}),
    f"{CURRENT}-er": ("er", {}),
    f"{CURRENT}-halo": ("halo", {}),
}


def write(folder: Path, method: str, settings: dict[str, Any]) -> None:
    """A classifier that was saved, then served: observations, a revision and a refused revision, all applied."""
    classifier = Classifier(
        ["kind", "species"], method=method, backbone="tiny", image_size=32, buffer=8, settings=settings
    )
    classifier.learn(EXAM, [(LEAVES[n // 10], "species") for n in range(len(EXAM))])
    classifier.save(folder)
    service = Service(folder, {}, Limits(), Pace())
    service.journal.append([as_post(examples(24))])
    links = [
        {"kind": "link", "child": {"name": child, "rank": "species"}, "parent": {"name": parent, "rank": "kind"}}
        for child, parent in (*TREE.items(), ("nobody", "bird"))
    ]
    service.journal.append([Post("revision", links)])
    while service.engine.turn():
        pass
    service.engine.save()
    (predictions,) = service.engine.snapshot.predict(list(EXAM.permute(0, 2, 3, 1).numpy()), [Asked(len(EXAM))])
    leave(service)
    (folder / "expected.json").write_text(json.dumps(expected(predictions), indent=1) + "\n")
    _shrink(folder)


def queue(folder: Path) -> None:
    """Kill its service while entries 30 to 36 are queued: six observations and the deletion of the first of them."""
    with started("--model", folder, constants={"engine.LINGER": 600.0}) as (process, client):
        post(client, examples(6, seed=5)).raise_for_status()
        client.delete("/observations/30").raise_for_status()
        process.kill()
    (folder / "expected.json").unlink()
    (folder / "lock").unlink()
    (folder / "journal.sqlite-shm").unlink()  # an index of the -wal file, which is made again


def expected(predictions: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Name -> probability along the path of each image."""
    return [{node["name"]: round(node["probability"], 4) for node in found["path"]} for found in predictions]


def _shrink(folder: Path) -> None:
    """Without images, which are pruned in time anyway, and without the older checkpoint."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        journal.executescript("DELETE FROM images; VACUUM;")
    min((folder / "checkpoints").iterdir()).unlink()
    (folder / "lock").unlink()


if __name__ == "__main__":
    data = Path(sys.argv[1])
    for name, (method, settings) in METHODS.items():
        if not (data / "folders" / name).exists():
            write(data / "folders" / name, method, settings)
    if not (data / "queued" / CURRENT).exists():
        queue(Path(shutil.copytree(data / "folders" / CURRENT, data / "queued" / CURRENT)))
