"""Run the code cells of a notebook without Jupyter.

python -m tests.helpers.notebooks examples/notebook.ipynb

runs them and stores what they print in the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUNNER = """
import contextlib, io, json, sys
names, printed = {"__name__": "__main__"}, []
for number, code in enumerate(json.load(sys.stdin), 1):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"cell {number}", "exec"), names)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: dict[str, Any]) -> str:
    """What the cell printed when it was last run."""
    return "".join(text for output in cell["outputs"] for text in output["text"])


def executed(path: Path) -> list[str]:
    """What each code cell prints. They run in order, in one namespace, in a process of its own, beside the file."""
    codes = ["".join(cell["source"]) for cell in code_cells(json.loads(path.read_text(encoding="utf-8")))]
    beside = os.pathsep.join([str(path.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(codes),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": beside},
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def main(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, (cell, text) in enumerate(zip(code_cells(notebook), executed(path), strict=True), 1):
        cell["execution_count"] = number
        output = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell["outputs"] = [output] if text else []
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
