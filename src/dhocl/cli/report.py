"""`dhocl report`: pages of runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, several are compared; or of a sweep.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the run's folder, or compare.html here, by default.")
    ] = None,
) -> None:
    """Make the page of a run, compare several on one page, or make the pages and tables of a sweep."""
    from dhocl.report import write_report, write_sweep_report
    from dhocl.sweep import SweepFolder

    if len(runs) == 1 and SweepFolder(runs[0]).recipes:
        Console().print(f"Wrote {write_sweep_report(runs[0])}", soft_wrap=True, markup=False)
        return
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("compare.html"))
    Console().print(f"Wrote {write_report(runs, page)}", soft_wrap=True, markup=False)
