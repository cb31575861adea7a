"""Decoding in processes of their own, with images that take too much, and decoders that hang or crash."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np
import pytest

from dhocl.core.errors import InputError
from dhocl.service import decoding, images
from dhocl.service.decoding import Decoder
from dhocl.service.images import SizeRefusedError
from tests.helpers.serving import encoded

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
MOST = 25_000_000


def with_decoder(use: Callable[[Decoder], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await use(Decoder(32, MOST))

    return anyio.run(main)


def own_process(*_: Any) -> int:
    return os.getpid()


def hang(*_: Any) -> None:
    time.sleep(600)


def crash(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def test_images_are_decoded_elsewhere_as_they_would_be_here() -> None:
    content = encoded(PHOTO)

    async def use(decoder: Decoder) -> None:
        assert await decoder.decode([content] * 2) == [images.decode(content, 32, MOST)] * 2
        assert await decoder.pixels([content]) == [images.pixels(content, 32, MOST)]
        (number,) = await decoder._each(own_process, [b""])
        assert number != os.getpid()
        with pytest.raises(images.TypeRefusedError, match="image 1 is neither"):
            await decoder.pixels([content, b"nothing"])
        with pytest.raises(InputError, match="image 0 is damaged"):
            await decoder.decode([content[:100]])

    with_decoder(use)


def test_a_decoder_that_hangs_is_ended_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(decoder: Decoder) -> None:
        hanging = (await decoder._each(own_process, [b""]))[0]
        monkeypatch.setattr(decoding, "SECONDS", 0.5)
        with pytest.raises(SizeRefusedError, match="image 0 takes more than"):
            await decoder._each(hang, [b""])
        monkeypatch.undo()
        with pytest.raises(ProcessLookupError):
            os.kill(hanging, 0)
        assert await decoder.pixels([encoded(PHOTO)])

    with_decoder(use)


def test_a_decoder_that_crashes_takes_nothing_with_it() -> None:
    async def use(decoder: Decoder) -> None:
        with pytest.raises(SizeRefusedError, match="image 0 can not be decoded"):
            await decoder._each(crash, [b""])
        assert await decoder.pixels([encoded(PHOTO)])

    with_decoder(use)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    large = encoded(np.zeros((5000, 5000, 3), dtype=np.uint8))

    async def use(decoder: Decoder) -> None:
        assert await decoder.pixels([large])
        monkeypatch.setattr(decoding, "MEMORY", 150 * 2**20)
        with pytest.raises(SizeRefusedError, match="too much memory"):
            await decoder.pixels([large])
        assert await decoder.pixels([encoded(PHOTO)])

    with_decoder(use)


def test_few_images_are_decoded_at_once_and_each_request_in_turn() -> None:
    async def use(decoder: Decoder) -> None:
        done: list[str] = []

        async def request(name: str, count: int) -> None:
            await decoder.pixels([encoded(PHOTO)] * count)
            done.append(name)

        async with anyio.create_task_group() as tasks:
            for place in range(decoding.PROCESSES):
                tasks.start_soon(request, f"large {place}", 40)
            tasks.start_soon(request, "small", 1)
        assert done[0] == "small"

    with_decoder(use)
