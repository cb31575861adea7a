from __future__ import annotations

from base64 import b64decode
from collections import Counter
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dhocl.core.decode import believe
from dhocl.core.taxonomy import Label
from dhocl.experiment.evaluate import Evaluator, _chosen
from dhocl.experiment.mistakes import EXAMPLES, PAIRS, Judged, confusions, mistakes, worst
from tests.experiment.test_evaluate import TRUE, Fixed, Scripted, dataset, known
from tests.helpers.trees import balanced_tree


def leaves(*names: str) -> list[int]:
    return [TRUE.id(Label(name, 1)) for name in names]


def test_those_of_an_evaluation_by_hand() -> None:
    nodes = leaves("0.0", "0.0", "0.1", "1.0", "1.1", "1.1")
    tree = known("0", "1", "1.1", "0.0", "0.1")  # 1.0 is not known, its superclass is
    answers = {0: [1, 1, 0, 0, 1, 1], 1: [0, 0, 1, 1, 0, 2]}  # columns of the known tree: 1.1, 0.0, 0.1
    evaluator = Evaluator(dataset(nodes))
    evaluator(Fixed(Scripted(answers, tree.widths), tree), torch.tensor(leaves("0.0", "0.1", "1.0")))
    found = evaluator.mistakes(tree)
    assert found["images"] == {"0": 4, "1": 3}, "1.1 was not streamed, and of 1.0 only the superclass is known"
    assert found["right"] == {"0": 1, "1": 0}
    assert found["confusions"]["0"] == [
        {"true": "0", "predicted": "1", "images": 2},
        {"true": "1", "predicted": "0", "images": 1},
    ]
    assert found["confusions"]["1"] == [
        {"true": "0.0", "predicted": "1.1", "images": 2},
        {"true": "0.1", "predicted": "0.0", "images": 1},
    ]
    told = [(example["true"], example["predicted"]) for example in found["examples"]]
    assert told[0] == (["0", "0.0"], ["1", "1.1"]), "wrong at two levels"
    assert {(tuple(t), tuple(p)) for t, p in told[1:]} == {(("0", "0.1"), ("0", "0.0")), (("1",), ("0",))}
    assert len(told) == 3, "the second image of the same pair is left out"
    image = np.asarray(Image.open(BytesIO(b64decode(found["examples"][1]["jpeg"]))))
    row = nodes.index(leaves("0.1" if told[1][0][-1] == "0.1" else "1.0")[0])
    assert abs(image.astype(int) - row).max() <= 2, "the image that was judged, but for the loss of JPEG"


def test_ranks_that_are_shown_lie_on_one_path() -> None:
    """Here three paths below 0 together outweigh the best one."""
    tree = balanced_tree(2, 3)  # 0, 1 and 0.0 to 1.2
    fine = torch.tensor([[0.2, 0.2, 0.2, 0.4, 0.0, 0.0]])
    beliefs = believe({0: torch.full((1, 2), 0.5), 1: fine}, tree)
    assert beliefs.marginals()[0].argmax().item() == 0
    chosen = _chosen(beliefs, "path")
    assert (chosen[0][1].item(), chosen[1][1].item()) == (1, 3)
    assert chosen[0][0].item() == pytest.approx(0.4)


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(2, 9))
def test_they_are_those_that_a_loop_finds(seed: int, n: int, classes: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    true = torch.randint(-1, classes, (n, 3), generator=rng)
    judged = Judged(torch.randint(0, classes, (n, 3), generator=rng), true, torch.rand(n, 3, generator=rng))
    names = [str(place) for place in range(classes)]
    for place in range(3):
        pairs = Counter(
            (int(t), int(p))
            for t, p in zip(true[:, place], judged.predicted[:, place], strict=True)
            if t != -1 and t != p
        )
        found = confusions(judged, place, names)
        assert [pair["images"] for pair in found] == sorted(pairs.values(), reverse=True)[:PAIRS]
        assert all(pairs[int(pair["true"]), int(pair["predicted"])] == pair["images"] for pair in found)
    order = []
    for row in range(n):
        places = [place for place in range(3) if true[row, place] != -1]
        wrong = [place for place in places if true[row, place] != judged.predicted[row, place]]
        if wrong:
            last = places[-1]
            pair = (last, int(true[row, last]), int(judged.predicted[row, last]))
            order.append((-len(wrong), -float(judged.confidence[row, last]), row, pair))
    first: dict[tuple[int, int, int], int] = {}
    for _, _, row, pair in sorted(order):
        first.setdefault(pair, row)
    assert worst(judged) == list(first.values())[:EXAMPLES]


def test_nothing_is_wrong() -> None:
    all_right = Judged(torch.tensor([[0, 1]]), torch.tensor([[0, 1]]), torch.ones(1, 2))
    found = mistakes(all_right, TRUE, torch.zeros(1, 3, 2, 2, dtype=torch.uint8))
    assert (found["confusions"], found["examples"]) == ({"0": [], "1": []}, [])
