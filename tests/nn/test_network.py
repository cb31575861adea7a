from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.network import Output


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.booleans())
def test_logits_by_node_are_in_the_order_in_which_classes_of_any_level_came(levels: list[int], merged: bool) -> None:
    tree = Taxonomy()
    for level in levels:
        tree.add(Label(f"class {len(tree)}", level))
    if merged and len(alike := tree.nodes(levels[0]).tolist()) > 1:
        tree.merge(alike[0], alike[1])
    logits = {level: torch.stack([tree.nodes(level) * 1.0, -1.0 * tree.nodes(level)]) for level in tree.levels}
    by_node = Output(logits, torch.empty(2, 0), torch.empty(2, 0)).by_node(tree)
    assert by_node.tolist() == [list(range(len(levels))), [-node for node in range(len(levels))]]
