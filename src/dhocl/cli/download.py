"""`dhocl download`: published data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def download(
    name: Annotated[str, typer.Argument(help="The data set, as in `dhocl list datasets`.")],
    data: Annotated[Path, typer.Option("--data", help="Folder to put it in.")],
) -> None:
    """Bring a published data set here. If it is stopped, run it again: it goes on where it was."""
    from dhocl.data.download import download as bring
    from dhocl.data.download import find_offer

    offer = find_offer(name)
    console = Console()
    console.print(f"{name}: {offer.terms}.", soft_wrap=True, markup=False)
    for file in bring(name, data):
        console.print(f"{file} is whole.", soft_wrap=True, markup=False)
    if offer.packed:
        console.print(f"Extract it: tar -xzf {data / offer.packed} -C {data}", soft_wrap=True, markup=False)
    console.print(f"Then: dhocl run --dataset {name} --data {data}", soft_wrap=True, markup=False)
