from __future__ import annotations

import pytest
import torch

from dhocl.core.decode import believe
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.service.served import describe


def tree() -> Taxonomy:
    taxonomy = Taxonomy()
    bird, fish = taxonomy.add(Label("bird", 0)), taxonomy.add(Label("fish", 0))
    for name, parent in [("robin", bird), ("crow", bird), ("cod", fish)]:
        taxonomy.link(taxonomy.add(Label(name, 1)), parent)
    return taxonomy


def test_a_path_is_consistent_and_its_probabilities_add_up() -> None:
    taxonomy = tree()
    p = {0: torch.tensor([[0.6, 0.4]]), 1: torch.tensor([[0.3, 0.25, 0.45]])}
    found = describe(believe(p, taxonomy), 0, taxonomy, ["kind", "species"], 0.5)
    weights = {"robin": 0.6 * 0.3, "crow": 0.6 * 0.25, "cod": 0.4 * 0.45}  # by hand
    total = sum(weights.values())
    assert found["ranks"]["species"] == {"name": "cod", "probability": pytest.approx(0.45)}
    assert [node["name"] for node in found["path"]] == ["bird", "robin"]
    assert found["path"][0]["probability"] == pytest.approx((weights["robin"] + weights["crow"]) / total)
    assert found["path"][1]["probability"] == pytest.approx(weights["robin"] / total)
    assert found["answer"] == found["path"][0], "robin is not sure enough"


@pytest.mark.parametrize(("confidence", "answer"), [(0.0, "robin"), (0.9, None)])
def test_how_deep_an_answer_goes(confidence: float, answer: str | None) -> None:
    p = {0: torch.tensor([[0.6, 0.4]]), 1: torch.tensor([[0.4, 0.25, 0.35]])}
    found = describe(believe(p, tree()), 0, tree(), ["kind", "species"], confidence)
    assert (found["answer"] and found["answer"]["name"]) == answer
