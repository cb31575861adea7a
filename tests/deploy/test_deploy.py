"""The examples in deploy/: their commands start a real service, and the tools they are for accept them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.helpers.serving import examples, post, settled, started, until

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "a-long-enough-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SMALL = ["--backbone", "tiny", "--image-size", "32"]


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile: name and arguments."""
    lines = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    parts = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, rest in parts]


def unit() -> str:
    return (DEPLOY / "dhocl.service").read_text()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(TOKEN)
    return tmp_path / "token"


def test_what_the_container_copies_is_there_and_enough() -> None:
    copied = [word for name, rest in instructions() if name == "COPY" for word in rest.split()[:-1]]
    assert all((DEPLOY.parent / word).exists() for word in copied)
    needed = {"pyproject.toml", "constraints.txt", "README.md", "src"}
    assert set(copied) == needed
    allowed = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert allowed == needed


def test_the_command_of_the_container_serves(tmp_path: Path, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its variables and its health check. Folders of the container are folders of the test."""
    found = dict(instructions())
    variables = dict(word.split("=") for word in shlex.split(found["ENV"]))
    for name, value in variables.items():
        value = value.replace("/data", str(tmp_path)).replace("/run/secrets/token", str(token))
        monkeypatch.setenv(name, value)
    assert json.loads(found["ENTRYPOINT"]) == ["dhocl", "serve"]
    assert found["EXPOSE"] == variables["DHOCL_SERVE_PORT"]
    check = json.loads(found["HEALTHCHECK"].removeprefix("CMD "))
    with started("--levels", "kind,species", *SMALL) as (process, client):
        port = str(client.base_url.port)
        environment = os.environ | {"DHOCL_SERVE_PORT": port}
        assert subprocess.run([sys.executable, *check[1:]], env=environment).returncode == 0
        assert post(client, examples(2)).status_code == 401
        process.terminate()
        assert process.wait() == 0
        assert subprocess.run([sys.executable, *check[1:]], env=environment, capture_output=True).returncode == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """A binary that is there takes the place of the one that would be installed."""
    (tmp_path / "dhocl.service").write_text(unit().replace("/opt/dhocl/bin/dhocl", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "dhocl.service"], capture_output=True, text=True)
    own = [line for line in done.stderr.splitlines() if "dhocl.service" in line]
    assert (done.returncode, own) == (0, []), done.stderr
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", tmp_path / "dhocl.service"]
    assert subprocess.run(words, capture_output=True).returncode == 0, "exposure above 2.0"


def test_the_command_of_the_unit_serves(tmp_path: Path, token: Path) -> None:
    found = re.search(r"^ExecStart=(.*)$", unit(), re.MULTILINE)
    assert found
    places = {"%S/dhocl": tmp_path, "%d": token.parent, "/etc/dhocl": DEPLOY}
    words = found[1]
    for written, here in places.items():
        words = words.replace(written, str(here))
    assert words.startswith("/opt/dhocl/bin/dhocl serve ")
    with started(*words.split()[2:], *SMALL) as (_, client):
        assert client.get("/taxonomy").json()["ranks"] == ["family", "genus", "species"]


@contextmanager
def proxied(folder: Path, service: httpx.Client) -> Iterator[httpx.Client]:
    """nginx with the example in front of the service, with a certificate of its own."""
    certificate, key, port = folder / "cert.pem", folder / "key.pem", free_port()
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*words, *more], check=True, capture_output=True)
    example = (DEPLOY / "nginx.conf").read_text()
    for written, here in {
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "/etc/ssl/birds.example/fullchain.pem": str(certificate),
        "/etc/ssl/birds.example/privkey.pem": str(key),
        "127.0.0.1:8000": f"127.0.0.1:{service.base_url.port}",
        "birds.example": "localhost",
    }.items():
        assert written in example
        example = example.replace(written, here)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"user root; daemon off; pid {folder}/pid; events {{}}\nhttp {{ access_log off; {temporary}\n{example}\n}}\n"
    )
    process = subprocess.Popen(["nginx", "-e", folder / "errors", "-p", folder, "-c", folder / "nginx.conf"])
    try:
        trusted = ssl.create_default_context(cafile=certificate)
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted, timeout=60) as client:
            until(lambda: reached(client), 20)
            yield client
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


def reached(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(not (shutil.which("nginx") and shutil.which("openssl")), reason="there is no nginx")
def test_nginx_in_front_of_a_service(tmp_path: Path, token: Path) -> None:
    options = ["--levels", "kind,species", *SMALL, "--token-file", token]
    with started("--model", tmp_path / "m", *options) as (_, service), proxied(tmp_path, service) as client:
        assert post(client, examples(4)).status_code == 401
        client.headers.update(BEARER | {"Origin": str(client.base_url).rstrip("/")})
        with client.stream("GET", "/events") as events:
            lines = events.iter_lines()
            assert next(lines) == ": welcome", "not held back"
            assert post(client, examples(4)).status_code == 202
            assert "event: observation" in lines
        assert settled(client)["learned"] == 4
        assert client.post("/taxonomy", json={}, headers={"Origin": "https://evil.example"}).status_code == 403
        large = client.post("/predict", content=b"x" * (33 * 2**20), headers={"Content-Type": "application/json"})
        assert (large.status_code, "nginx" in large.text) == (413, True)
        page = client.get("/")
        assert "max-age" in page.headers["strict-transport-security"]
        assert "script-src" in page.headers["content-security-policy"]
