from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import FileLock
from hypothesis import settings

from dhocl.data import Selection, load
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record

# Times vary on a shared machine, and a failure must be the same for everyone.
settings.register_profile("dhocl", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("dhocl")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """Tests neither read nor fill the user's cache of decoded images; their workers share one, rendered once."""
    base = tmp_path_factory.getbasetemp()
    cache = (base if worker_id == "master" else base.parent) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DHOCL_CACHE", str(cache))
        cache.mkdir(exist_ok=True)
        with FileLock(cache / "lock"):
            load("glyphs", Selection(samples=1, test_samples=1))
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A small run that went to its end; not to be written to."""
    from tests.helpers.small_runs import FINISHED, finish

    return finish(RunConfig(**FINISHED), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.helpers.browsing import launched

    with launched() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that has learned birds and fish and their tree."""
    from tests.helpers.serving import taught_service

    with taught_service(tmp_path_factory.mktemp("taught")) as client:
        yield client


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[httpx.Client]:
    """A service that has learned nothing yet."""
    from tests.helpers.serving import running

    with running(tmp_path / "m") as client:
        yield client
