"""`dhocl download`: download published data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def download(
    name: Annotated[str, typer.Argument(help="Name of the data set, from `dhocl list datasets`.")],
    data: Annotated[Path, typer.Option("--data", help="Folder to download to.")],
) -> None:
    """Download a published data set from its authors.

    An interrupted download resumes when the command is run again. Files are verified by their checksums.
    """
    from dhocl.data.download import download as start
    from dhocl.data.download import find_offer

    offer = find_offer(name)
    console = Console()
    console.print(f"Terms of {name}: {offer.terms}.", soft_wrap=True, markup=False)
    for file in start(name, data):
        console.print(f"{file} is complete.", soft_wrap=True, markup=False)
    if offer.packed:
        console.print(f"Extract it: tar -xzf {data / offer.packed} -C {data}", soft_wrap=True, markup=False)
    console.print(f"Then: dhocl run --dataset {name} --data {data}", soft_wrap=True, markup=False)
