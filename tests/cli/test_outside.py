"""The real command with a method, a data set and a backbone from another folder."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dhocl.checks import CHECKS, resumed_equals_uninterrupted
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.sweep import Ended, Job, start
from tests.helpers.small_runs import command
from tests.helpers.standin import accelerator
from tests.helpers.waiting import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "outside"
FILES = ("my_method", "my_data", "my_backbone")
CHOSEN = {"method": "my_method:NearestMean", "dataset": "my_data:figures", "backbone": "my_backbone:small"}
MORE = {"groups": 2, "batch": 8, "eval_every": 40}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in (CHOSEN | MORE).items()]


def words(*arguments: object) -> list[str]:
    """The command as it is installed: the current directory is not on the path of Python."""
    return [sys.executable, "-P", "-c", "from dhocl.cli import main; main()", *map(str, arguments)]


def dhocl(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(*arguments), cwd=folder, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of somebody else's, with the files of docs/extend.md."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "project"))


def test_run_killed_resumed_and_reported(project: Path, tmp_path: Path) -> None:
    done = dhocl(project, "run", *FLAGS, "--set", "sharpness=30")
    assert done.returncode == 0, done.stderr
    whole = Record(project / "runs" / "NearestMean-figures-0")
    assert whole.config() == RunConfig(**CHOSEN | MORE, settings={"sharpness": 30.0})  # type: ignore[arg-type]
    assert whole.summary()["AAUC"] > 40

    # A method that waits after its second evaluation, to be killed there; then as it is.
    method = project / "my_method.py"
    as_it_is = method.read_text()
    method.write_text(
        as_it_is.replace(
            "        return {}\n",
            "        import time\n        self.step = getattr(self, 'step', 0) + 1\n"
            "        time.sleep(600 if self.step == 12 else 0)\n        return {}\n",
        )
    )
    killed = Record(project / "killed")
    process = subprocess.Popen(words("run", *FLAGS, "--set", "sharpness=30", "--out", "killed", "--quiet"), cwd=project)
    until(lambda: len(killed.curve()) == 2 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.finished
    method.write_text(as_it_is)
    again = dhocl(project, "run", "--resume", "--out", "killed", "--quiet")
    assert again.returncode == 0, again.stderr
    for name in ("curve.jsonl", "taxonomy.jsonl"):
        assert (killed.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name

    # A report needs no module of the run; going on does.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    report = dhocl(elsewhere, "report", killed.folder, whole.folder, "--out", "page.html")
    assert report.returncode == 0, report.stderr
    assert "my_method:NearestMean" in (elsewhere / "page.html").read_text()
    (killed.folder / "summary.json").unlink()
    lost = dhocl(elsewhere, "run", "--resume", "--out", killed.folder, "--quiet")
    assert lost.returncode == 2
    assert re.fullmatch(r"dhocl: my_method:NearestMean can not be imported: .*; run from the folder .*\n", lost.stderr)


def test_a_sweep_finds_it_in_its_workers(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(project)
    config = RunConfig(**CHOSEN | MORE)  # type: ignore[arg-type]
    events = list(start([Job(config, tmp_path / "run")], "local", 1, None))
    (ended,) = (event for event in events if isinstance(event, Ended))
    assert ended.problem is None
    assert Record(tmp_path / "run").finished


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"method": "my_method:Nearest"}, "my_method:Nearest: .*my_method.py has no 'Nearest'"),
        ({"method": "my_method:MeanSettings"}, "MeanSettings is not a Learner"),
        ({"method": "my_metod:NearestMean"}, "my_metod:NearestMean can not be imported: No module named 'my_metod'"),
        ({"dataset": "my_data:LEVELS"}, "my_data:LEVELS is not a data set"),
        ({"dataset": "my_data:dict"}, "my_data.py has no 'dict'"),
        ({"backbone": "my_backbone:__doc__"}, "my_backbone:__doc__ is not a backbone"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    chosen: dict[str, str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    given = [f"--{name}={value}" for name, value in (CHOSEN | chosen | {"groups": 2}).items()]
    code, _, errors = command(capsys, monkeypatch, "run", *given, "--out", str(tmp_path / "run"), "--quiet")
    assert code == 2
    assert re.match(f"dhocl: .*{message}", errors), errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_example_method_passes_the_checks(check: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from my_method import MeanSettings, NearestMean  # type: ignore[import-not-found]

    check(lambda setup: NearestMean(setup, MeanSettings()))  # type: ignore[operator]


def test_the_example_method_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from my_method import MeanSettings, NearestMean

    with accelerator():
        resumed_equals_uninterrupted(lambda setup: NearestMean(setup, MeanSettings()))


@pytest.mark.parametrize("name", FILES)
def test_the_documents_show_the_examples_as_they_are(name: str) -> None:
    shown = re.findall(r"```python.*?\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL)
    assert (EXAMPLES / f"{name}.py").read_text() in shown


def test_an_installed_package_adds_rows_to_the_list(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    points = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL)[0]
    info = project / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    plain = re.sub(r'\[project.entry-points."(.*?)"\]', r"[\1]", points).replace('"', "")
    (info / "entry_points.txt").write_text(plain + "[dhocl.datasets]\nbroken = nowhere:data\n")
    monkeypatch.syspath_prepend(project)
    monkeypatch.setenv("COLUMNS", "160")
    rows = {}
    for kind in ("methods", "datasets", "backbones"):
        code, output, _ = command(capsys, monkeypatch, "list", kind)
        assert code == 0
        rows[kind] = [" ".join(line.split()) for line in output.splitlines()]
    assert "nearest_mean Nearest class mean on frozen features. outside" in rows["methods"]
    assert "figures Coloured squares and stripes. (outside)" in rows["datasets"]
    assert any(row.startswith("broken can not be loaded: InputError: nowhere:data") for row in rows["datasets"])
    assert "small Two convolutions, untrained; 32 features. (outside)" in rows["backbones"]
    given = ["--method=nearest_mean", "--dataset=figures", "--backbone=small", "--groups=2", "--quiet"]
    code, _, errors = command(capsys, monkeypatch, "run", *given, "--out", str(project / "run"))
    assert (code, errors) == (0, "")
    assert json.loads((project / "run" / "config.json").read_text())["config"]["method"] == "nearest_mean"
