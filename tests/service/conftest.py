"""Fixtures that several tests of the service share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dhocl.service import journal
from tests.helpers.replicas import EACH, saved, teach
from tests.helpers.serving import running


@pytest.fixture(scope="module")
def short_memory() -> Iterator[None]:
    """What may be forgotten is forgotten at once, so that it shows if it was needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "IMAGES", 3)
        patch.setattr(journal, "ROWS", 8)
        yield


@pytest.fixture(scope="module")
def taught_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a service that has stopped, with two checkpoints."""
    folder = tmp_path_factory.mktemp("followed") / "m"
    with running(folder, pace=EACH) as client:
        saved(client, 0)
        teach(client, 1)
    return folder
