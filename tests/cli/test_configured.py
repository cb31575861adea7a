"""Options of `dhocl serve` from a file and from the environment."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.helpers.serving import started
from tests.helpers.small_runs import command

FILE = """
model = "MODEL"
levels = "kind,species"
backbone = "tiny"
image-size = 32
queue = 2
batch = 3
log-format = "json"
protect-reading = false
source = []
"""


def test_flag_then_environment_then_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(FILE.replace("MODEL", str(tmp_path / "m")))
    monkeypatch.setenv("DHOCL_SERVE_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setenv("DHOCL_SERVE_BATCH", "5")
    monkeypatch.setenv("DHOCL_SERVE_LEVELS", "order,kind,species")
    monkeypatch.setenv("DHOCL_SERVE_ACCESS_LOG", "true")
    monkeypatch.setenv("DHOCL_SERVE_PORT", "1")  # started() gives --port 0
    with (tmp_path / "log").open("w") as log, started("--levels", "genus,species", stderr=log) as (_, client):
        assert client.get("/taxonomy").json()["ranks"] == ["genus", "species"], "the flag"
        assert "at most 5 per request" in too_many(client), "the environment"
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].startswith("{"), "the file"
    assert '"event": "request"' in lines[1]


def too_many(client: httpx.Client) -> str:
    answer = client.post("/predict", json={"images": ["aaaa"] * 6})
    return str(answer.json()["detail"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prot = 80", "c.toml: unknown key prot: use one of model, levels"),
        ("image_mb = 4", "c.toml: unknown key image_mb: use one of"),
        ("--port = 80", "c.toml: unknown key --port"),
        ("config = 'd.toml'", "c.toml: unknown key config"),
        ("[serve]\nport = 80", "c.toml: unknown key serve"),
        ("port = 'high'", "c.toml: port = 'high': "),
        ("port = 70000", "c.toml: port = 70000: "),
        ("port = true", "c.toml: port = True: expected one value, as for --port"),
        ("port = [1, 2]", "c.toml: port = [1, 2]: expected one value, as for --port"),
        ("source = 'wordnet:x'", "c.toml: source = 'wordnet:x': expected a list, as for --source"),
        ("access-log = 'perhaps'", "c.toml: access-log = 'perhaps': "),
        ("log-format = 'xml'", "c.toml: log-format = 'xml': "),
        ("port = ", "c.toml is not TOML: "),
        (None, "c.toml can not be read: No such file or directory"),
    ],
)
def test_mistakes_in_the_file(
    content: str | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if content is not None:
        (tmp_path / "c.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    code, _, errors = command(capsys, monkeypatch, "serve", "--config", "c.toml")
    assert (code, errors.count("\n")) == (2, 1)
    assert message in errors


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DHOCL_SERVE_PROT", "80", "unknown environment variable DHOCL_SERVE_PROT: use one of DHOCL_SERVE_MODEL"),
        ("DHOCL_SERVE_PORT", "high", "DHOCL_SERVE_PORT=high: "),
        ("DHOCL_SERVE_PORT", "70000", "DHOCL_SERVE_PORT=70000: "),
        ("DHOCL_SERVE_PROTECT_READING", "perhaps", "DHOCL_SERVE_PROTECT_READING=perhaps: "),
    ],
)
def test_mistakes_in_the_environment(
    name: str,
    value: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    code, _, errors = command(capsys, monkeypatch, "serve")
    assert (code, errors.count("\n")) == (2, 1)
    assert message in errors


def test_an_option_of_the_file_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "c.toml").write_text(f"port = {port}\nmodel = '{tmp_path / 'm'}'\n")
        code, _, errors = command(capsys, monkeypatch, "serve", "--config", str(tmp_path / "c.toml"))
    assert (code, f"can not listen on 127.0.0.1 port {port}" in errors) == (2, True)


def test_help_teaches_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = command(capsys, monkeypatch, "serve", "--help")
    assert "DHOCL_SERVE_IMAGE_MB=4" in out
    assert "image-mb = 4" in out
