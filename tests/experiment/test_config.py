"""A configuration is declared once, speaks of arguments, and can be stored."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from torch import nn

from dhocl import cli
from dhocl.cli.options import PANELS
from dhocl.cli.run import run as command
from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig
from dhocl.methods.er import ER
from dhocl.nn.backbones.simple import tiny
from tests.helpers.small_runs import command as dhocl


class Mine(ER):
    pass


def test_classes_and_functions_are_stored_by_name() -> None:
    config = RunConfig(method=Mine, backbone=tiny, data=Path("some") / "where")
    assert config.method == f"{__name__}:Mine"
    assert config.backbone == "dhocl.nn.backbones.simple:tiny"
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert config == RunConfig(method=f"{__name__}:Mine", backbone=config.backbone, data="some/where")


def test_a_stored_configuration_is_read_where_its_method_is_not() -> None:
    stored = RunConfig().to_json() | {"method": "nowhere:Mine"}
    assert RunConfig.from_json(stored).method == "nowhere:Mine"


def test_what_can_not_be_stored_is_refused() -> None:
    class Local(ER):
        pass

    with pytest.raises(InputError, match="Local is defined in a function"):
        RunConfig(method=Local)
    with pytest.raises(InputError, match=r"Conv2d is neither a class nor a function, .* give a function that makes it"):
        RunConfig(backbone=nn.Conv2d(3, 8, 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": 0}, "`samples` 0: at least 1"),
        ({"image_size": -3}, "`image_size` -3: at least 1"),
        ({"replay_batch": -1}, "`replay_batch` -1: at least 0"),
        ({"decode": "tree"}, "`decode` tree: one of level, path"),
        ({"delay": 1.5}, "`delay` 1.5: a whole number of batches"),
        ({"vacant": 0.9, "noise": 0.2}, "`vacant` 0.9, `noise` 0.2: fractions"),
    ],
)
def test_errors_name_the_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig(**given)


# -- the command line -------------------------------------------------------------------------------------------------


def test_every_field_has_an_option_with_its_default() -> None:
    offered = {param.name: param for param in typer.main.get_command(cli.app).commands["run"].params}  # type: ignore[attr-defined]
    for field in dataclasses.fields(RunConfig):
        option = offered[field.name]
        expected = "--set" if field.name == "settings" else "--" + field.name.replace("_", "-")
        assert option.opts == [expected]
        assert option.help
        assert f"{field.name}: {option.help}" in " ".join(str(RunConfig.__doc__).split())
        assert field.name in PANELS[option.rich_help_panel]
        if field.default is not dataclasses.MISSING:
            assert option.default == field.default
    own = {name for name, kind in inspect.signature(command).parameters.items() if kind.annotation is not typer.Context}
    assert own - {field.name for field in dataclasses.fields(RunConfig)} == {"out", "resume", "log", "device", "quiet"}


def test_the_command_names_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, errors = dhocl(capsys, monkeypatch, "run", "--image-size", "0", "--out", str(tmp_path / "run"))
    assert (code, errors) == (2, "dhocl: --image-size 0: at least 1\n")
    code, _, errors = dhocl(capsys, monkeypatch, "run", "--set", "gamma=x", "--out", str(tmp_path / "run"))
    assert (code, errors) == (2, "dhocl: --set gamma=x: expected a value of type float\n")


def test_the_help_does_not_wait_for_pytorch() -> None:
    code = "import sys, dhocl.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("place", ["core", "data", "experiment/config.py", "experiment/sweep", "methods", "stream"])
def test_errors_of_the_library_name_no_flags(place: str) -> None:
    root = Path(cli.__file__).parents[1] / place
    for file in [root] if root.is_file() else root.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "InputError":
                assert not re.search(r"--[a-z]", ast.unparse(call)), f"{file.name} line {call.lineno}"
