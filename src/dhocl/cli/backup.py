"""`dhocl backup`: copy a model, also while it is served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress


def backup(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a service, a run or a saved classifier.")],
    into: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the copy: a new or an empty one.")],
) -> None:
    """Copy a model with its journal. The service may learn meanwhile.

    The copy has every observation that was accepted before the backup began, exactly once. Back up a running service:
    `dhocl backup birds backups/monday`

    Restore it: `dhocl serve --model backups/monday`
    """
    from dhocl.service.backup import backup as start

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Copying", total=None)
        newest = start(model, into, lambda done, whole: bar.update(task, completed=done, total=whole))
    entries = f" with entries up to {newest}" if newest else ""
    print(f"dhocl: {model} is copied{entries}; `dhocl serve --model {into}` continues the copy")
