"""The page of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dhocl.core.files import write_atomically
from dhocl.report.page import templates

MATRIX = 30  # classes of a level whose confusion matrix is drawn; of more, the most frequent mistakes are listed
LISTED = 50


def write_evaluation(page: Path, content: dict[str, Any], sheet: list[dict[str, Any]]) -> None:
    """Write a self-contained page, and `content` as JSON beside it.

    Args:
        page: the HTML file.
        content: what was evaluated, and the results (`Evaluation.to_json`).
        sheet: mistakes to show, each with `image` and `uri`, a thumbnail.
    """
    levels = [rank["level"] for rank in content["ranks"]]
    matrices = {level: matrix(content["confusions"][level]) for level in levels}
    confused = {
        level: [pair for pair in content["confusions"][level] if pair["true"] != pair["predicted"]][:LISTED]
        for level in levels
    }
    title = " on ".join(Path(content[part]).resolve().name for part in ("model", "data"))
    html = (
        templates()
        .get_template("evaluation.html")
        .render(content | {"title": title, "sheet": sheet, "matrices": matrices, "confused": confused})
    )
    write_atomically(page.with_suffix(".json"), json.dumps(content, ensure_ascii=False, indent=1).encode())
    write_atomically(page, html.encode())


def matrix(confusions: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """True class -> predicted class -> images; empty if there are too many classes.

    >>> matrix([{"true": "a", "predicted": "b", "images": 3}])
    {'a': {'a': 0, 'b': 3}, 'b': {'a': 0, 'b': 0}}
    """
    names = sorted({pair[side] for pair in confusions for side in ("true", "predicted")})
    if len(names) > MATRIX:
        return {}
    rows = {name: dict.fromkeys(names, 0) for name in names}
    for pair in confusions:
        rows[pair["true"]][pair["predicted"]] = pair["images"]
    return rows
