"""examples/notebook.ipynb prints what is stored in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.helpers.notebooks import code_cells, executed, stored

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def masked(line: str) -> str:
    """Without the digits of fractions, which depend on the machine in the end."""
    return re.sub(r"\d+\.\d+", "#", line)


def is_close(line: str) -> bool:
    """Whether it shows a class that another machine may not choose."""
    return any(0.4 <= float(fraction) <= 0.8 for fraction in re.findall(r"\b0\.\d+", line))


def test_the_notebook_prints_what_it_shows() -> None:
    cells = code_cells(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    for printed, cell in zip(executed(NOTEBOOK), cells, strict=True):
        pairs = list(zip(printed.splitlines(), stored(cell).splitlines(), strict=True))
        assert pairs
        assert [masked(new) for new, old in pairs if not is_close(old)] == [
            masked(old) for _, old in pairs if not is_close(old)
        ]
