"""Turns: who is next, and who waits too long."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dhocl.service.turns import BusyError, Line, Patience


def test_the_largest_weight_is_next_then_the_first() -> None:
    async def use() -> None:
        line, order = Line(1), []

        async def take(name: str, weight: int) -> None:
            async with line.turn(Patience(60), weight):
                order.append(name)
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            for name, weight in [("first", 0), ("a", 1), ("b", 5), ("c", 5), ("d", 2)]:
                tasks.start_soon(take, name, weight)
                await checkpoint()
        assert order == ["first", "b", "c", "d", "a"]

    anyio.run(use)


def test_the_waits_of_a_request_are_counted_together_and_who_leaves_keeps_no_turn() -> None:
    async def use() -> None:
        line, patience = Line(2), Patience(2)

        async def hold(seconds: float) -> None:
            async with line.turn(Patience(60)):
                await anyio.sleep(seconds)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold, 0.2)
            tasks.start_soon(hold, 60)
            await checkpoint()
            async with line.turn(patience):  # after 0.2 s
                tasks.start_soon(hold, 60)
                with pytest.raises(BusyError):
                    async with line.turn(patience):
                        raise AssertionError("both turns are taken")
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            async with line.turn(Patience(0)), line.turn(Patience(0)):
                pass

    anyio.run(use)
