from __future__ import annotations

import torch
from torch import Tensor

from dhocl.data.dataset import Dataset, Split
from dhocl.evaluate import Evaluator, summarise
from dhocl.learner import Batch, Learner, Part
from dhocl.taxonomy import Label, Taxonomy
from trees import balanced_tree

TRUE = balanced_tree(2, 2)  # classes 0, 1 and 0.0, 0.1, 1.0, 1.1


class Scripted(Learner):
    """Says what it was told to, image by image: a column per level."""

    def __init__(self, answers: dict[int, list[int]], widths: dict[int, int]) -> None:
        self.answers, self.widths = answers, widths

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        return {}

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        rows = x[:, 0, 0, 0].long()  # image i holds the number i
        return {
            level: 0.8 * torch.eye(self.widths[level])[torch.tensor(columns)[rows]] + 0.2 / self.widths[level]
            for level, columns in self.answers.items()
        }

    def parts(self) -> dict[str, Part]:
        return {}


def dataset(nodes: list[int]) -> Dataset:
    pixels = torch.arange(len(nodes), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
    split = Split(pixels, torch.tensor(nodes))
    return Dataset("scripted", ("coarse", "fine"), TRUE, split, split, flip=False)


def known(*names: str) -> Taxonomy:
    tree = Taxonomy()
    for name in names:
        tree.add(Label(name, name.count(".")))
    for name in names:
        if "." in name and name[0] in names:
            tree.link(tree.id(Label(name, 1)), tree.id(Label(name[0], 0)))
    return tree


def test_scores_by_hand() -> None:
    """Known: 1, 0 (in that order) and 1.1, 0.0, 0.1. Images of 1.0 do not count at the fine level."""
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "0.1", "1.0", "1.1", "0.0")]
    tree = known("1", "0", "1.1", "0.0", "0.1")
    answers = {0: [1, 0, 0, 0, 1], 1: [1, 1, 0, 0, 0]}  # coarse 0 1 1 1 0; fine 0.0 0.0 1.1 1.1 1.1
    scores = Evaluator(dataset(leaves))(Scripted(answers, tree.widths), tree)
    assert scores["level_accuracy"] == {"0": 80.0, "1": 50.0}  # 4 of 5; of 0.0, 0.1, 1.1, 0.0 the first and third
    assert scores["accuracy"] == 65.0
    assert scores["fine_accuracy"] == 50.0
    assert scores["ms"] == (0 + 1 + 0 + 2) / 4  # right; sibling; right; across
    assert scores["ms_mistakes"] == 1.5
    assert scores["path_consistency"] == 60.0  # the second and the last contradict themselves


def test_path_decoding_is_judged_beside() -> None:
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "1.1")]
    tree = known("0", "1", "0.0", "1.1")
    sure = Scripted({0: [1, 1], 1: [0, 1]}, tree.widths)
    scores = Evaluator(dataset(leaves))(sure, tree)
    assert scores["path_consistency"] == 50.0
    assert scores["path"]["path_consistency"] == 100.0


def test_before_the_finest_level_is_known_there_is_no_fine_score() -> None:
    leaves = [TRUE.id(Label("0.0", 1)), TRUE.id(Label("1.0", 1))]
    tree = known("0")
    scores = Evaluator(dataset(leaves))(Scripted({0: [0, 0]}, tree.widths), tree)
    assert scores["level_accuracy"] == {"0": 100.0}  # the image of 1.0 does not count: 1 is not known
    assert scores["fine_accuracy"] is None
    assert "ms" not in scores
    assert scores["path_consistency"] == 100.0
    summary = summarise([scores])
    assert summary["FAUC"] is None
    assert summary["AAUC"] == 100.0


def test_an_evaluation_without_mistakes_does_not_lower_their_severity() -> None:
    def scores(fine: float, ms: float, mistakes: float | None) -> dict[str, object]:
        own = {"accuracy": fine, "fine_accuracy": fine, "ms": ms, "ms_mistakes": mistakes, "path_consistency": 100.0}
        own |= {"level_accuracy": {"1": fine}, "level_ece": {"1": 0.0}}
        return own | {"path": own}

    assert summarise([scores(100.0, 0.0, None), scores(50.0, 1.0, 2.0)])["ms_mistakes"] == 2.0
