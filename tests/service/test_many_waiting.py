"""Hundreds of clients whose requests are complete and wait for their turn, through a process of its own."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from threading import Event

import httpx
import pytest

from tests.helpers.machine import slowness
from tests.helpers.serving import NEW, examples, post, settled, started
from tests.service.test_fairness import client_of
from tests.service.test_one_client import SMALL

CLIENTS = 900


@contextmanager
def predicting(address: httpx.URL, content: bytes) -> Iterator[Counter[bytes]]:
    """Clients of one address that post an image every second. Returned are the numbers of responses by status."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    request = httpx.Request("POST", f"{address}/predict", files={"image": ("x", content)})
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    sent = f"POST /predict HTTP/1.1\r\n{head}\r\n".encode() + request.read()
    stop, statuses = Event(), Counter[bytes]()

    async def repeat() -> None:
        while not stop.is_set():
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                with suppress(OSError, asyncio.LimitOverrunError):
                    while not stop.is_set():
                        writer.write(sent)
                        if not (line := await reader.readline()):
                            break
                        statuses[line.split()[1]] += 1
                        while (line := await reader.readline()).strip():
                            if line.startswith(b"content-length"):
                                length = int(line.split()[1])
                        await reader.readexactly(length)
                        await asyncio.sleep(1)
                writer.close()
            await asyncio.sleep(1)

    async def all_repeat() -> None:
        tasks = [asyncio.create_task(repeat()) for _ in range(CLIENTS)]
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(asyncio.run, all_repeat())
        try:
            yield statuses
        finally:
            stop.set()
            attack.result()


@pytest.mark.parametrize("content", [SMALL, examples(1)[0][0]], ids=["to be decoded", "to be predicted"])
def test_others_are_answered(tmp_path: Path, content: bytes) -> None:
    """Also if they would be the first to make room for a new connection, because they wait for nothing yet."""
    with started("--model", tmp_path / "m", *NEW) as (_, client):
        post(client, examples(8))
        settled(client)
        found = []
        with predicting(client.base_url, content) as statuses:
            time.sleep(5)
            for path in 10 * ("/health", "/metrics"):
                with client_of(client.base_url, "127.0.0.2") as other:
                    began = time.monotonic()
                    code = other.get(path).status_code
                    found.append((code, time.monotonic() - began))
        assert {code for code, _ in found} == {200}
        assert median(seconds for _, seconds in found) < 2 * slowness()
        assert set(statuses) <= {b"200", b"429"}
