"""examples/notebook.ipynb prints what is stored in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.helpers.notebooks import code_cells, executed, stored

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def masked(text: str) -> str:
    """Without the digits of fractions, which depend on the machine in the end."""
    return re.sub(r"\d+\.\d+", "#", text)


def test_the_notebook_prints_what_it_shows() -> None:
    cells = code_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    printed = executed(NOTEBOOK)
    assert list(map(masked, printed)) == [masked(stored(cell)) for cell in cells]
    assert all(printed)
