from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees what another, or the user, has cached."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DHOCL_CACHE", str(folder))
    return folder
