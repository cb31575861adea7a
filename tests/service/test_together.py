from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dhocl.service.together import Together


def test_items_that_wait_are_handled_in_one_call_up_to_a_size() -> None:
    calls: list[list[int]] = []
    go = threading.Event()

    def handle(items: list[int]) -> list[int]:
        calls.append(items)
        go.wait(60)
        return [10 * item for item in items]

    found: dict[int, int] = {}

    async def main() -> None:
        together = Together(handle, lambda item: item, most=6)

        async def ask(item: int) -> None:
            found[item] = await together(item)

        async with anyio.create_task_group() as tasks:
            for item in (1, 2, 3, 9, 4):
                tasks.start_soon(ask, item)
            while not calls:
                await anyio.sleep(0.001)
            go.set()
        assert await together(5) == 50

    anyio.run(main)
    assert [sorted(call) for call in calls] == [[1, 2, 3], [9], [4], [5]]
    assert found == {item: 10 * item for item in (1, 2, 3, 4, 9)}


def test_addresses_take_turns() -> None:
    calls: list[list[int]] = []
    go = threading.Event()

    def handle(items: list[int]) -> list[int]:
        calls.append(items)
        go.wait(60)
        return items

    async def main() -> None:
        together = Together(handle, lambda _: 1, most=2)
        async with anyio.create_task_group() as tasks:
            for item in range(6):
                tasks.start_soon(together, item, "a")
                await checkpoint()
            tasks.start_soon(together, 6, "b")
            await checkpoint()
            go.set()

    anyio.run(main)
    first, *others = calls
    assert first == [0]
    assert others == [[1, 6], [2, 3], [4, 5]]


def test_an_error_reaches_all_of_its_call_and_nobody_else() -> None:
    def handle(items: list[int]) -> list[int]:
        if 0 in items:
            raise ZeroDivisionError
        return items

    async def main() -> None:
        together = Together(handle, lambda _: 1, most=2)
        failed: list[int] = []

        async def ask(item: int) -> None:
            try:
                assert await together(item) == item
            except ZeroDivisionError:
                failed.append(item)

        async with anyio.create_task_group() as tasks:
            for item in (0, 1, 2):
                tasks.start_soon(ask, item)
        assert failed == [0, 1]

    anyio.run(main)


def test_a_request_that_is_cancelled_does_not_hinder_others() -> None:
    async def main() -> None:
        together = Together(lambda items: items, lambda _: 1, most=8)
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(0):
                await together(1)
            tasks.start_soon(together, 2)
        assert await together(3) == 3

    anyio.run(main)
    with pytest.raises(ValueError, match="shorter"):  # a result for each item
        anyio.run(Together(lambda _: [], lambda _: 1, most=8), 1)
