"""How an option is declared."""

from __future__ import annotations

from typing import Any

import typer


def option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """Shown with the others of its panel."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)
