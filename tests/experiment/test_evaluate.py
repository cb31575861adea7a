from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dhocl.core.decode import Beliefs, believe, known_paths, merge_synonyms
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.dataset import Dataset, Split
from dhocl.experiment.evaluate import Evaluator, populations, summarise
from tests.helpers.trees import balanced_tree

TRUE = balanced_tree(2, 2)  # classes 0, 1 and 0.0, 0.1, 1.0, 1.1
ALL = torch.arange(len(TRUE))  # every class was streamed


class Scripted:
    """Says what it was told to, image by image: a column per level."""

    def __init__(self, answers: dict[int, list[int]], widths: dict[int, int]) -> None:
        self.answers, self.widths = answers, widths

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        rows = x[:, 0, 0, 0].long()  # image i holds the number i
        return {
            level: 0.8 * torch.eye(self.widths[level])[torch.tensor(columns)[rows]] + 0.2 / self.widths[level]
            for level, columns in self.answers.items()
        }


@dataclass
class Fixed:
    """A model that predicts and never learns."""

    learner: Scripted
    taxonomy: Taxonomy

    def beliefs(self, x: Tensor) -> Beliefs:
        return believe(merge_synonyms(self.learner.predict(x), self.taxonomy), self.taxonomy)


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


def test_predictions_of_a_merged_class_count_for_its_accepted_class() -> None:
    tree = Taxonomy()
    for label in (Label("0", 0), Label("0.0", 1), Label("0.1", 1), Label("old 0.1", 1)):
        tree.add(label)
    tree.merge(3, 2)
    p = {0: torch.ones(1, 1), 1: torch.tensor([[0.4, 0.25, 0.35]])}
    assert torch.allclose(merge_synonyms(p, tree)[1], torch.tensor([[0.4, 0.6, 0.0]]))
    tree.add(Label("1.0", 1))
    assert torch.allclose(merge_synonyms(p, tree)[1], torch.tensor([[0.4, 0.6, 0.0, 0.0]])), (
        "as wide as the tree is by now"
    )
    assert known_paths(tree).tolist() == [[0, -1], [-1, 0], [-1, 1], [-1, 3]], "no path ends at a synonym"
    for level in (2, 2, -1):
        tree.add(Label(f"new {len(tree)}", level))
    whole = merge_synonyms(p, tree)
    assert list(whole) == [-1, 0, 1, 2]
    assert (whole[-1].tolist(), whole[2].tolist()) == ([[1.0]], [[0.5, 0.5]])


def test_scores_by_hand() -> None:
    """Known: 1, 0 (in that order) and 1.1, 0.0, 0.1. Images of 1.0 do not count at the fine level."""
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "0.1", "1.0", "1.1", "0.0")]
    tree = known("1", "0", "1.1", "0.0", "0.1")
    answers = {0: [1, 0, 0, 0, 1], 1: [1, 1, 0, 0, 0]}  # coarse 0 1 1 1 0; fine 0.0 0.0 1.1 1.1 1.1
    scores = Evaluator(dataset(leaves))(Fixed(Scripted(answers, tree.widths), tree), ALL)
    assert scores["level_accuracy"] == {"0": 80.0, "1": 50.0}  # 4 of 5; of 0.0, 0.1, 1.1, 0.0 the first and third
    assert scores["accuracy"] == 65.0
    assert scores["fine_accuracy"] == 50.0
    assert scores["ms"] == (0 + 1 + 0 + 2) / 4  # right; sibling; right; across
    assert scores["ms_mistakes"] == 1.5
    assert scores["lca_distance"] == scores["ms"] / 2
    assert scores["path_consistency"] == 60.0  # the second and the last contradict themselves


def test_populations_of_a_hand_made_stream() -> None:
    """Streamed: images of 0.0, labelled "0", and of 1.1, labelled "1" and "1.1". So 0.0 has no class of its own yet."""
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "0.1", "1.0", "1.1")]
    tree = known("0", "1", "1.1")
    learner = Scripted({0: [0, 1, 0, 0], 1: [0, 0, 0, 0]}, tree.widths)
    streamed = torch.tensor([leaves[0], leaves[3], leaves[3]])
    scores = Evaluator(dataset(leaves))(Fixed(learner, tree), streamed)
    assert scores["level_accuracy"] == {"0": 50.0, "1": 100.0}  # coarse: 0.0 right, 1.1 wrong; fine: 1.1 alone
    assert scores["open"]["level_accuracy"] == {"0": 25.0, "1": 100.0}  # 0.1 and 1.0, never streamed, are both wrong
    summary = summarise([scores])
    assert (summary["AAUC"], summary["open.AAUC"]) == (75.0, 62.5)
    assert summary["open.path.AAUC"] is not None
    # Sets of predicted classes: {0, 1.1} and {0, 1.1}; true and known: {0} and {1, 1.1}.
    assert (summary["h_precision"], summary["h_recall"]) == (50.0, 100 * (2 / 3))
    # Beside them {1, 1.1} and {0, 1.1} for {0} and {1}: of 8 predicted 2 are right, of 5 true ones 2.
    assert (summary["open.h_precision"], summary["open.h_recall"]) == (25.0, 40.0)


def test_an_inner_class_was_seen_once_something_at_or_below_it_was() -> None:
    nodes = torch.tensor([TRUE.id(Label("0", 0)), TRUE.id(Label("1", 0)), TRUE.id(Label("0.1", 1))])
    below = populations(nodes, torch.tensor([TRUE.id(Label("0.0", 1))]), TRUE)
    assert below[""].tolist() == [True, False, False]
    above = populations(nodes, torch.tensor([TRUE.id(Label("0", 0))]), TRUE)
    assert above[""].tolist() == [True, False, False], "an image of a coarse class does not bring its finer ones"
    assert below["open"].all()


def test_nothing_of_the_test_was_streamed_yet() -> None:
    leaves = [TRUE.id(Label("0.0", 1))]
    scores = Evaluator(dataset(leaves))(
        Fixed(Scripted({0: [0]}, {0: 2}), known("0", "1")), torch.tensor([leaves[0] + 2])
    )
    assert (scores["accuracy"], scores["open"]["accuracy"]) == (None, 100.0)
    summary = summarise([scores])
    assert (summary["AAUC"], summary["h_f1"], summary["path_consistency"], summary["open.AAUC"]) == (None,) * 3 + (100,)


def test_path_decoding_is_judged_beside() -> None:
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "1.1")]
    tree = known("0", "1", "0.0", "1.1")
    sure = Scripted({0: [1, 1], 1: [0, 1]}, tree.widths)
    scores = Evaluator(dataset(leaves))(Fixed(sure, tree), ALL)
    assert scores["path_consistency"] == 50.0
    assert scores["path"]["path_consistency"] == 100.0


def test_before_the_finest_level_is_known_there_is_no_fine_score() -> None:
    leaves = [TRUE.id(Label("0.0", 1)), TRUE.id(Label("1.0", 1))]
    tree = known("0")
    scores = Evaluator(dataset(leaves))(Fixed(Scripted({0: [0, 0]}, tree.widths), tree), ALL)
    assert scores["level_accuracy"] == {"0": 100.0}  # the image of 1.0 does not count: 1 is not known
    assert scores["fine_accuracy"] is None
    assert "ms" not in scores
    assert scores["path_consistency"] == 100.0
    summary = summarise([scores])
    assert summary["FAUC"] is None
    assert summary["AAUC"] == 100.0


def test_sets_and_classes_by_hand() -> None:
    """The images, answers and known classes of the first test; an image of 1.0 counts with its superclass alone."""
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "0.1", "1.0", "1.1", "0.0")]
    tree = known("1", "0", "1.1", "0.0", "0.1")
    learner = Scripted({0: [1, 0, 0, 0, 1], 1: [1, 1, 0, 0, 0]}, tree.widths)
    evaluator = Evaluator(dataset(leaves))
    scores = evaluator(Fixed(learner, tree), ALL, sets=True, classes=True)
    assert math.isclose(scores["pw_js"], 100 * (1 + 0 + 1 + 1 + 1 / 3 * 1 / 2) / 5)
    assert scores["class_accuracy"] == {"0": [100.0, 100 * (2 / 3)], "1": [100.0, 50.0, 0.0]}
    assert scores["path"].keys() == scores.keys() - {"path", "open"}
    plain = evaluator(Fixed(learner, tree), ALL)
    for more, same in ((scores, plain), (scores["path"], plain["path"])):
        assert more.keys() - same.keys() == {"pw_js", "class_accuracy"}
        assert all(more[name] == same[name] for name in same if name not in ("path", "open")), "the rest is as without"


def test_an_image_without_a_known_class_is_in_no_set() -> None:
    leaves = [TRUE.id(Label(name, 1)) for name in ("0.0", "1.0")]
    tree = known("0")
    scores = Evaluator(dataset(leaves))(Fixed(Scripted({0: [0, 0]}, tree.widths), tree), ALL, sets=True, classes=True)
    assert scores["pw_js"] == 100
    other = Evaluator(dataset(leaves[1:]))(Fixed(Scripted({0: [0]}, tree.widths), tree), ALL, sets=True, classes=True)
    assert other["pw_js"] is None
    assert other["class_accuracy"] == {"0": [None]}


def test_evaluations_at_group_ends_alone_do_not_enter_areas() -> None:
    def scores(fine: float, periodic: bool, classes: list[float] | None) -> dict[str, object]:
        own = {"accuracy": fine, "fine_accuracy": fine, "path_consistency": 100.0, "pw_js": fine / 2}
        own |= {"level_accuracy": {"1": fine}, "level_ece": {"1": 0.0}}
        own |= {} if classes is None else {"class_accuracy": {"1": classes}}
        own["path"] = dict(own)
        return own | {"open": own, "periodic": periodic}

    curve = [scores(10, True, None), scores(90, False, [90.0]), scores(30, True, [50.0, 10.0])]
    summary = summarise(curve)
    for prefix in ("", "path.", "open.", "open.path."):
        assert summary[prefix + "AAUC"] == 20
        assert summary[prefix + "A_AUC"] == summary[prefix + "level_auc"] == {"1": 20}
        assert summary[prefix + "A_last"] == {"1": 30}
        assert summary[prefix + "F_last"] == {"1": 40}
        assert summary[prefix + "pw_js"] == {"mean": 10, "group_ends": 30, "last": 15}
    assert summarise(curve[1:2])["A_AUC"] == {"1": 90}, "a run that has come to a group end only"


def test_an_evaluation_without_mistakes_does_not_lower_their_severity() -> None:
    def scores(fine: float, ms: float, mistakes: float | None) -> dict[str, object]:
        own = {"accuracy": fine, "fine_accuracy": fine, "ms": ms, "ms_mistakes": mistakes, "path_consistency": 100.0}
        own |= {"level_accuracy": {"1": fine}, "level_ece": {"1": 0.0}}
        own["path"] = dict(own)
        return own | {"open": own}

    assert summarise([scores(100.0, 0.0, None), scores(50.0, 1.0, 2.0)])["ms_mistakes"] == 2.0
