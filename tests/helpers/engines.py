"""An engine without HTTP: what is accepted into its journal, and the turns that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dhocl.service.journal import Post
from dhocl.service.service import Service
from tests.helpers.serving import as_post


def observe(service: Service, given: Sequence[tuple[bytes, str, str]]) -> list[int]:
    (numbers,) = service.journal.append([as_post(given)])
    assert numbers is not None
    return numbers


def revise(service: Service, **revision: Any) -> int:
    (numbers,) = service.journal.append([Post("revision", [revision])])
    assert numbers is not None
    return numbers[0]


def work_off(service: Service, turns: int = 1000) -> None:
    for _ in range(turns):
        if not service.engine.turn():
            return
