from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # for tests/trees.py, from whichever folder a test is in

# Times vary on a shared machine, and a failure must be the same for everyone.
settings.register_profile("dhocl", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("dhocl")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither read nor fill the user's cache of decoded images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DHOCL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
