"""`dhocl report`: reports of runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from dhocl.core.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, of several runs to compare, or of a sweep.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file; default: report.html in the folder of the run, or compare.html for several."),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(help="Of a sweep: folder for Markdown pages with the claims, tables and figures, for documents."),
    ] = None,
) -> None:
    """Write an HTML report of a run, a comparison of several runs, or tables and figures of a sweep.

    `dhocl report runs/full --pages docs/results` writes the results documents: a summary that decides the claims of the
    paper, a page for each recipe, and runs.csv, which has the command of each run.
    """
    from dhocl.experiment.sweep import SweepFolder
    from dhocl.report import write_pages, write_report, write_sweep_report

    if pages is not None:
        if len(runs) != 1 or out is not None:
            raise InputError("--pages is for one sweep: give its folder alone, without --out")
        console = Console(stderr=True)
        written = write_pages(runs[0], pages, lambda names: track(names, "Recipes", console=console, transient=True))
        Console().print(f"Wrote {written}", soft_wrap=True, markup=False)
        return
    if len(runs) == 1 and SweepFolder(runs[0]).recipes:
        Console().print(f"Wrote {write_sweep_report(runs[0])}", soft_wrap=True, markup=False)
        return
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("compare.html"))
    Console().print(f"Wrote {write_report(runs, page)}", soft_wrap=True, markup=False)
