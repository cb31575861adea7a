"""The command line."""

from __future__ import annotations

import errno
import re
import sys
from typing import Annotated

import typer

import dhocl
from dhocl.cli.backup import backup
from dhocl.cli.bench import bench
from dhocl.cli.download import download
from dhocl.cli.evaluate import evaluate
from dhocl.cli.learn import learn
from dhocl.cli.list import list_
from dhocl.cli.merge import merge
from dhocl.cli.predict import predict
from dhocl.cli.report import report
from dhocl.cli.run import run
from dhocl.cli.serve import serve
from dhocl.cli.suggest import suggest
from dhocl.cli.sweep import sweep
from dhocl.core.errors import InputError, lacks_memory

app = typer.Typer(
    help="Online continual learning with label hierarchies that grow.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dhocl {dhocl.__version__}")
        raise typer.Exit


app.command()(learn)
app.command()(predict)
app.command()(evaluate)
app.command()(suggest)
app.command()(run)
app.command()(sweep)
app.command("list")(list_)
app.command()(download)
app.command()(report)
app.command(context_settings={"auto_envvar_prefix": "DHOCL_SERVE"})(serve)
app.command()(backup)
app.command()(merge)
app.command()(bench)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


# Errors of the operating system that the user can fix: disk space and permissions.
_USERS_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}


def main() -> None:
    """An InputError is printed as one line, with exit code 2. A lack of memory is one line, with exit code 1.

    Any other exception is a bug, with a traceback.
    """
    if "" not in sys.path:
        sys.path.append("")  # so that `--method mymodule:MyMethod` finds a file in the current directory
    try:
        app()
    except InputError as error:
        _fail(_with_flags(str(error)))
    except Exception as error:
        if lacks_memory(error):
            _fail(f"memory is short ({type(error).__name__}: {error}): try again when there is more", code=1)
        if not isinstance(error, OSError) or error.errno not in _USERS_ERRORS:
            raise
        what = error.filename or "the output"
        _fail(f"can not write {what}: {error.strerror}; free disk space or choose another --out")


def _fail(message: str, code: int = 2) -> None:
    print(f"dhocl: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _with_flags(message: str) -> str:
    """Replace names of Python arguments in an error, such as `image_size`, by flags of the command: --image-size."""
    command = typer.main.get_command(app).commands[sys.argv[1]]  # type: ignore[attr-defined]
    flags = {param.name: max(param.opts, key=len) for param in command.params}
    return re.sub(r"`(\w+)`", lambda found: flags.get(found[1], found[0]), message)
