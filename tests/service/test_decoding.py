"""Decoding in processes of their own, with images that take too much, and decoders that hang or crash."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from dhocl.core.errors import InputError
from dhocl.service import decoding, images
from dhocl.service.decoding import Decoder
from dhocl.service.images import SizeRefusedError
from tests.helpers.decoders import crash, hang, own_process, toil
from tests.helpers.serving import encoded

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
MOST = 25_000_000


def with_decoder(use: Callable[[Decoder], Awaitable[Any]], most: int = MOST) -> Any:
    async def main() -> Any:
        return await use(Decoder(32, most))

    return anyio.run(main)


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


@pytest.mark.parametrize(("work", "limit"), [(toil, "SECONDS"), (hang, "PATIENCE"), (crash, "SECONDS")])
def test_a_decoder_that_toils_hangs_or_crashes_is_ended_and_others_go_on(
    work: Callable[..., Any], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(decoder: Decoder) -> None:
        process = (await decoder._each(own_process, [b""]))[0]
        monkeypatch.setattr(decoding, limit, 1)
        with pytest.raises(InputError, match="image 0 takes too long to decode, or crashes"):
            await decoder._each(work, [b""])
        monkeypatch.undo()
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        assert await decoder.pixels([encoded(PHOTO)])

    with_decoder(use)


def end_once(mark: bytes, *_: Any) -> int:
    """Ended by the system the first time."""
    if not (file := Path(mark.decode())).exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def test_a_process_that_the_system_ends_is_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SECONDS", 60)  # a busy machine may take seconds to start it

    async def use(decoder: Decoder) -> None:
        assert await decoder._each(end_once, [str(tmp_path / "mark").encode()]) == [7]

    with_decoder(use)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    large = encoded(np.zeros((5000, 5000, 3), dtype=np.uint8))

    async def use(decoder: Decoder) -> None:
        assert await decoder.pixels([large])
        monkeypatch.setattr(decoding, "MEMORY", 150 * 2**20)
        with pytest.raises(InputError, match="too much memory"):
            await decoder.pixels([large])
        assert await decoder.pixels([encoded(PHOTO)])

    with_decoder(use)


def test_requests_take_turns_and_small_images_do_not_wait_for_large_ones() -> None:
    small, large = encoded(PHOTO), encoded(np.zeros((2100, 2100, 3), dtype=np.uint8))

    async def use(decoder: Decoder) -> None:
        done: list[str] = []

        async def request(name: str, content: bytes, count: int) -> None:
            await decoder.pixels([content] * count)
            done.append(name)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(request, "large", large, 6)
            for _ in range(3):
                tasks.start_soon(request, "many", small, 20)
            tasks.start_soon(request, "one", small, 1)
        assert done[0] == "one"
        assert done[-3:] == ["large"] * 3

    with_decoder(use)


def test_what_is_too_large_is_refused() -> None:
    async def use(decoder: Decoder) -> None:
        with pytest.raises(SizeRefusedError, match=f"5001 x 5000 pixels: at most {decoder._most}"):
            await decoder.pixels([encoded(np.zeros((5000, 5001), dtype=np.uint8))])

    with_decoder(use)
    with_decoder(use, 1000)
