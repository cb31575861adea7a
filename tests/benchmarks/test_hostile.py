"""benchmarks/hostile.py: what it takes for a service that withstood an attack."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GOOD = {
    "valid": {"predict": {"requests": 9, "p50_ms": 40, "p99_ms": 1000}},
    "statuses": {"valid 200": 9, "hostile 429": 50, "hostile ReadError": 3},
    "memory_mb": [400, 900, 410, 400, 1300, 400, 430, 440, 1200],
    "accepted": 5,
    "learned": 5,
    "exit_code": 0,
}


def test_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    problems = runpy.run_path(str(BENCHMARKS / "hostile.py"))["problems"]

    def found(**changed: Any) -> list[str]:
        return list(problems(GOOD | changed))

    assert found() == []
    assert found(valid={"predict": {"requests": 9, "p50_ms": 40, "p99_ms": 1001}}) == ["predict: p99 is 1001 ms"]
    assert found(statuses={"hostile 429": 1, "valid 429": 1}) == ["1 responses: valid 429"]
    assert found(statuses={"hostile 429": 1, "valid ReadError": 2}) == ["2 responses: valid ReadError"]
    assert found(statuses={"hostile 429": 1, "hostile 500": 3}) == ["3 responses: hostile 500"]
    assert found(memory_mb=[400, 900, 410, 400, 400, 400, 460, 440, 460]) == ["memory grew from 410 to 460 MB"]
    assert found(memory_mb=[400]) == []
    assert found(statuses={"valid 200": 9}) == ["no attack was answered"]
    assert found(learned=3) == ["2 accepted images were not learned"]
    assert found(exit_code=-9) == ["the exit code is -9"]
