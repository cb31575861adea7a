"""Turns: who is next, and who waits too long."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dhocl.service.turns import BusyError, Line, Patience


def test_addresses_take_turns() -> None:
    async def use() -> None:
        line, order = Line(1), []

        async def take(address: str, place: int) -> None:
            async with line.turn(Patience(60), address):
                order.append(f"{address}{place}")
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            for place, address in enumerate("aaaabbca"):
                tasks.start_soon(take, address, place)
                await checkpoint()
        assert order == ["a0", "a1", "b4", "c6", "a2", "b5", "a3", "a7"]

    anyio.run(use)


def test_who_leaves_is_passed_over() -> None:
    async def use() -> None:
        line, order = Line(1), []

        async def take(address: str, seconds: float) -> None:
            async with line.turn(Patience(seconds), address):
                order.append(address)
                await anyio.sleep(0.2)

        async def leave(address: str) -> None:
            with pytest.raises(BusyError):
                await take(address, 0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, "a", 60)
            await checkpoint()
            for address in "bc":
                tasks.start_soon(leave, address)
            for address in "bb":
                tasks.start_soon(take, address, 60)
        assert order == ["a", "b", "b"]

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
