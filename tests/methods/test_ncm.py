"""Nearest class mean against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.neighbors import NearestCentroid

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.methods.ncm import NCM, NcmSettings, nearest_mean
from dhocl.nn.learner import Batch
from tests.helpers.reference_closed_form import features, followed


@pytest.mark.filterwarnings("ignore:.*within_class_std_dev_")
@pytest.mark.parametrize("tau", [0.05, 0.4])
def test_it_equals_class_means_over_all_samples_by_the_present_tree(tau: float) -> None:
    learner, x = NCM(setup(), NcmSettings(tau)), exam()[0]
    test, compared = features(x), 0
    for samples, tree, predicted in followed(learner, x):
        for level, width in tree.widths.items():
            _, phi, columns = samples.at(level, tree)
            logits = np.full((len(x), width), -np.inf)
            for column in set(columns.tolist()):
                mean = phi[columns == column].mean(0)
                logits[:, column] = [-np.sum((row - mean) ** 2) / tau for row in test]
            np.testing.assert_allclose(predicted[level].numpy(), softmax(logits, axis=1), atol=1e-4)
            if len(set(columns.tolist())) > 1:
                centroids = NearestCentroid().fit(phi, columns)
                found = predicted[level].argmax(1).numpy()
                two = np.sort(logits, 1)[:, -2:]
                clear = two[:, 1] - two[:, 0] > 1e-3
                assert (found == centroids.predict(test))[clear].all()
                compared += clear.sum()
    assert compared > 300
    assert len(tree.levels) == 3


def test_a_class_without_a_sample_has_probability_0_unless_none_has_one() -> None:
    learner, tree = NCM(setup(), NcmSettings()), Taxonomy()
    robin, _, animal = tree.add(Label("robin", 1)), tree.add(Label("crow", 1)), tree.add(Label("animal", 0))
    tree.add(Label("rock", 0))
    x = exam()[0]
    learner.learn(Batch(x[:3], torch.tensor([robin] * 3)), tree)
    assert learner.predict(x)[1].unique(dim=0).tolist() == [[1, 0]]
    assert learner.predict(x)[0].unique(dim=0).tolist() == [[0.5, 0.5]]
    tree.link(robin, animal)
    learner.learn(Batch(x[:0], torch.zeros(0, dtype=torch.long)), tree)
    assert learner.predict(x)[0].unique(dim=0).tolist() == [[1, 0]], "a link alone counts"


def test_logits_are_negative_squared_distances_up_to_a_constant() -> None:
    M, N = torch.tensor([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]), torch.tensor([2.0, 3.0, 0.0])
    W, b = nearest_mean(M, N, 0.5)
    z = torch.tensor([0.6, 0.8]) @ W.t() + b - 1 / 0.5
    assert z.tolist() == pytest.approx([-(0.4**2 + 0.8**2) / 0.5, -(0.6**2 + 0.2**2) / 0.5, -torch.inf])


def test_it_is_solved_once_until_something_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, x, solved = NCM(setup(), NcmSettings()), exam()[0], []
    solve = learner.solve
    monkeypatch.setattr(learner, "solve", lambda level, table: (solved.append(level), solve(level, table))[1])
    curator = feed(learner, stream(3))
    assert solved == []
    learner.predict(x), learner.predict(x[:3])
    assert solved == [0, 1]
    feed(learner, stream(1), curator)
    learner.predict(x)
    assert solved == [0, 1, 0, 1]
    learner.load_state_dict(learner.state_dict())
    learner.predict(x)
    assert solved == [0, 1] * 3


def test_the_network_is_passed_once_for_prediction_and_learning() -> None:
    prepared = setup()
    learner = NCM(prepared, NcmSettings())
    (x, labels), *_ = stream(1)
    learner.predict(x)
    feed(learner, [(x, labels)])
    assert prepared.backbone.meter.pixels == len(x) * 32 * 32
