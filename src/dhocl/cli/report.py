"""`dhocl report`: HTML reports of runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def report(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, of several runs to compare, or of a sweep.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file; default: report.html in the folder of the run, or compare.html for several."),
    ] = None,
) -> None:
    """Write an HTML report of a run, a comparison of several runs, or tables and figures of a sweep."""
    from dhocl.experiment.sweep import SweepFolder
    from dhocl.report import write_report, write_sweep_report

    if len(runs) == 1 and SweepFolder(runs[0]).recipes:
        Console().print(f"Wrote {write_sweep_report(runs[0])}", soft_wrap=True, markup=False)
        return
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("compare.html"))
    Console().print(f"Wrote {write_report(runs, page)}", soft_wrap=True, markup=False)
