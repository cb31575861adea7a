from __future__ import annotations

import pytest

from dhocl import Label, Taxonomy


@pytest.fixture
def tree() -> Taxonomy:
    """bird: robin, crow; fish: cod"""
    tree = Taxonomy()
    for species, kind in (("robin", "bird"), ("crow", "bird"), ("cod", "fish")):
        tree.link(tree.add(Label(species, 1)), tree.add(Label(kind, 0)))
    return tree
