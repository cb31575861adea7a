"""The command line."""

from __future__ import annotations

import errno
import sys

import typer

from dhocl.cli.download import download
from dhocl.cli.list import list_
from dhocl.cli.report import report
from dhocl.cli.run import run
from dhocl.cli.serve import serve
from dhocl.cli.sweep import sweep
from dhocl.errors import InputError

app = typer.Typer(
    help="Online continual learning with label hierarchies that grow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(run)
app.command()(sweep)
app.command("list")(list_)
app.command()(download)
app.command()(report)
app.command()(serve)

# What the operating system refuses for want of room or rights.
_USERS_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def main() -> None:
    """Errors of the user's are one line and exit code 2; ours are a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        if error.errno not in _USERS_ERRORS:
            raise
        what = error.filename or "the output"
        _fail(f"can not write {what}: {error.strerror}; free some room or choose another --out")


def _fail(message: str) -> None:
    print(f"dhocl: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
