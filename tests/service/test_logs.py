"""What the command logs, and that nothing else of the package configures logging."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dhocl.service.logs import JsonLines, Line, TextLines
from tests.helpers.failing import FAULTS
from tests.helpers.serving import NEW, encoded, examples, link, post, settled, started

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def story(client: httpx.Client) -> None:
    """All that is worth a line: entries learned and refused, revisions applied and refused, a request refused."""
    black = encoded(np.zeros((32, 32, 3), dtype=np.uint8))
    post(client, [*examples(20), (black, "void", "kind")])
    settled(client)
    link(client, "robin", "bird")
    link(client, "nobody", "bird")
    assert client.get("/nowhere%0Aforged?secret=1").status_code == 404
    settled(client)


def logged(folder: Path, *options: str) -> str:
    with (folder / "log").open("w+") as log:
        arguments = ["--model", folder / "m", *NEW, "--method", "tests.helpers.failing:Failing", *options]
        with started(*arguments, stderr=log) as (process, client):
            story(client)
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        log.seek(0)
        return log.read()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULTS, str(folder / "faults"))
        return [json.loads(line) for line in logged(folder, "--log-format", "json", "--access-log").splitlines()]


def found(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def test_start_and_stop(lines: list[dict[str, Any]]) -> None:
    (start,), (stop,) = found(lines, "start"), found(lines, "stop")
    assert lines[0] == start
    assert lines[-1] == stop
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", start["address"])
    assert start["model"].endswith("/m")
    assert start["method"] == "tests.helpers.failing:Failing"
    assert (stop["learned"], stop["level"]) == (20, "info")
    assert 0 < stop["seconds"] < 5
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)


def test_a_checkpoint_is_logged(lines: list[dict[str, Any]]) -> None:
    last = found(lines, "checkpoint written")[-1]
    assert (last["entry"], last["learned"]) == (23, 20)
    assert last["seconds"] > 0


def test_what_was_refused_is_logged_with_the_reason(lines: list[dict[str, Any]]) -> None:
    refused = {line["entry"]: line["reason"] for line in found(lines, "entry refused")}
    assert set(refused) == {21, 23}
    assert "the learner failed" in refused[21]
    assert "nobody" in refused[23]
    assert [(line["entry"], line["kind"]) for line in found(lines, "revision applied")] == [(22, "link")]


def test_a_defect_has_its_traceback_in_the_line(lines: list[dict[str, Any]]) -> None:
    (defect,) = [line for line in lines if "traceback" in line]
    assert "ValueError: a black image" in defect["traceback"]
    assert defect["level"] == "error"


def test_requests_are_logged_by_option(lines: list[dict[str, Any]]) -> None:
    requests = found(lines, "request")
    posted = next(line for line in requests if line["path"] == "/observations")
    assert (posted["method"], posted["status"], posted["client"]) == ("POST", 202, "127.0.0.1")
    assert posted["seconds"] > 0
    lost = next(line for line in requests if line["status"] == 404)
    assert lost["path"] == "/nowhere\nforged", "and nothing of the query"


def test_text_is_one_line_per_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS, str(tmp_path / "faults"))
    text = logged(tmp_path)
    events = [line for line in text.splitlines() if re.match(TIME, line)]
    assert re.match(rf"{TIME} INFO start: address=http://127\.0\.0\.1:\d+ model=\S+ method=\S+ learned=0 ", events[0])
    assert re.match(rf"{TIME} INFO stop: entry=23 learned=20 seconds=", events[-1])
    assert "request" not in text
    assert "forged" not in text


def formatted(message: object, form: logging.Formatter) -> str:
    return form.format(logging.LogRecord("dhocl", logging.INFO, "", 0, message, None, None))


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
@pytest.mark.parametrize("message", ["a\nINFO forged", Line("a", b="\nINFO forged"), Line("a", b="\u2028\x1b[31m")])
def test_no_text_can_forge_a_line(form: logging.Formatter, message: object) -> None:
    line = formatted(message, form)
    assert line.isprintable()
    assert "\u2028" not in line


def test_a_line_reads_as_words() -> None:
    line = Line("entry refused", entry=3, reason='no "bird"', empty="", name="Übel")
    assert str(line) == 'entry refused: entry=3 reason="no \\"bird\\"" empty="" name=Übel'


def test_a_library_call_changes_no_logging(tmp_path: Path) -> None:
    program = f"""
import logging, threading, uvicorn
before = (logging.root.handlers[:], logging.root.level, logging.getLogger("dhocl").level)
from pathlib import Path
from tests.helpers.serving import running
with running(Path({str(tmp_path)!r}) / "m") as client:
    assert client.get("/health").status_code == 200
assert before == (logging.root.handlers, logging.root.level, logging.getLogger("dhocl").level)
assert not logging.getLogger("uvicorn").handlers
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
