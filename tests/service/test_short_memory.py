"""A lack of memory outside of the learner: the engine waits, and nothing is refused or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dhocl.service import recovery
from dhocl.service.journal import Journal
from dhocl.service.keeper import Keeper
from dhocl.service.served import ServedModel, Snapshot
from dhocl.service.service import Service
from tests.helpers.engines import observe
from tests.helpers.serving import examples, leave, opened, until

PYTORCH = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(recovery, "LONGEST", 0.01)
    service = opened(tmp_path / "m")
    observe(service, examples(40))
    yield service
    leave(service)


def failing(times: int, error: Exception, work: Callable[..., Any]) -> Callable[..., Any]:
    left = [times]

    def fail(*given: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return work(*given, **more)

    return fail


@pytest.mark.parametrize("error", [MemoryError(), PYTORCH, OSError(12, "Cannot allocate memory")], ids=repr)
@pytest.mark.parametrize(
    ("owner", "name"),
    [(Journal, "after"), (Journal, "settle"), (Keeper, "load"), (ServedModel, "save"), (Snapshot, "__init__")],
)
def test_the_engine_waits(
    service: Service, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    if name == "load":  # a failure of the learner leads there
        monkeypatch.setattr(ServedModel, "learn", failing(1, MemoryError(), ServedModel.learn))
    monkeypatch.setattr(owner, name, failing(12, error, getattr(owner, name)))
    service.engine.start()
    until(lambda: service.snapshot.learned == 40, 60)
    until(lambda: service.health()["status"] == "ok", 60)
    service.engine.stop()
    assert not service.engine.failed
    assert (service.snapshot.refused, service.journal.queued) == (0, 0)


def test_pauses_grow_to_a_limit_and_no_further() -> None:
    shortage = recovery.Shortage()
    pauses = [shortage.pause(7) for _ in range(3000)]
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert set(pauses[6:]) == {30.0}
    assert shortage.seconds > 0
    shortage.applied(6)
    assert shortage.seconds > 0, "a replay before it proves nothing"
    shortage.applied(7)
    assert shortage.seconds == 0
    assert shortage.pause(8) == 1.0
