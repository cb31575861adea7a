"""ACIL's phase-wise formula and GACL's general one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import softmax
from sklearn.linear_model import Ridge

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.acil import ACIL, AnalyticSettings, analytic_heads
from dhocl.methods.gacil import GACIL, GacilSettings
from dhocl.nn.features import FrozenFeatures
from dhocl.nn.heads.analytic import AnalyticHead
from dhocl.nn.heads.predla import analytic_softmax
from tests.helpers.reference_others import arriving, path


def trained(columns: list[torch.Tensor], exposed: bool) -> tuple[AnalyticHead, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    phi = [torch.randn(len(c), 8, generator=generator) for c in columns]
    head = AnalyticHead(8, 0.5, exposed_labels=exposed)
    for x, c in zip(phi, columns, strict=True):
        head.grow(int(c.max()) + 1)
        head.learn(x, c)
    x, y = torch.cat(phi), F.one_hot(torch.cat(columns)).float()
    ridge = torch.linalg.solve(x.t() @ x + 0.5 * torch.eye(8), x.t() @ y).t()
    return head, ridge


def test_both_agree_with_ridge_when_classes_do_not_come_back() -> None:
    disjoint = [torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2, 3]), torch.tensor([4, 4, 4, 4])]
    for exposed in (True, False):
        head, ridge = trained(disjoint, exposed)
        torch.testing.assert_close(head.W, ridge, rtol=1e-4, atol=1e-5)


def test_only_the_general_form_agrees_when_they_do() -> None:
    mixed = [torch.tensor([0, 0, 1]), torch.tensor([1, 0, 2]), torch.tensor([2, 1, 0, 3])]
    general, ridge = trained(mixed, exposed=True)
    torch.testing.assert_close(general.W, ridge, rtol=1e-4, atol=1e-5)
    phased, _ = trained(mixed, exposed=False)
    assert (phased.W - ridge).abs().max() > 0.05


def test_a_class_that_never_had_a_sample_scores_exactly_zero() -> None:
    head, _ = trained([torch.tensor([0, 0, 1])], exposed=True)
    head.grow(3)
    assert (head.W[2] == 0).all()


def test_gacil_widens_the_features() -> None:
    learner = GACIL(setup(), GacilSettings(expansion=40))
    feed(learner, stream(2))
    assert learner.analytic._level(1).R.shape == (40, 40)


# -- whole streams against scikit-learn ------------------------------------------------------------------------


def unit_rows(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def embedded(x: torch.Tensor, expansion: int, unit: bool, stages: float = 0.0) -> np.ndarray:
    """Features of the untrained backbone, one image at a time, and the random layer, in float64."""
    backbone = setup().backbone.eval()
    with torch.no_grad():
        pooled = [[part.double().numpy() for part in backbone.pooled(image[None])] for image in x]
    stage, phi = (np.concatenate(parts) for parts in zip(*pooled, strict=True))
    if stages:
        phi = unit_rows(np.concatenate([stages * unit_rows(stage), unit_rows(phi)], axis=1))
    phi = unit_rows(phi) if unit else phi
    if expansion:
        noise = Rng(0, "expansion").standard_normal((phi.shape[1], expansion))
        phi = np.maximum(phi @ noise, 0)
        phi = unit_rows(phi) if unit else phi
    return phi


VARIANTS = {  # method, settings, and what they should mean: gamma, expansion, unit length, all labels learned
    "acil": (ACIL, AnalyticSettings(), 0.3, 0, True, True),
    "acil, its formula": (ACIL, AnalyticSettings(exposed_labels=False), 0.3, 0, True, False),
    "acil, raw features": (ACIL, AnalyticSettings(normalise=False), 0.3, 0, False, True),
    "gacil": (GACIL, GacilSettings(expansion=200), 0.12, 200, True, True),
    "gacil, raw features": (GACIL, GacilSettings(3.0, 50, normalise=False), 3.0, 50, False, True),
    "acil, stages": (ACIL, AnalyticSettings(stages=0.5), 0.3, 0, True, True),
    "acil, raw stages": (ACIL, AnalyticSettings(stages=2.0, normalise=False), 0.3, 0, False, True),
    "acil, balanced": (ACIL, AnalyticSettings(balance=0.5), 0.3, 0, True, True),
    "acil, its formula, balanced": (ACIL, AnalyticSettings(exposed_labels=False, balance=1.0), 0.3, 0, True, False),
    "gacil, both": (GACIL, GacilSettings(expansion=200, stages=0.5, balance=0.7), 0.12, 200, True, True),
}


def factors(labels: list[dict[int, int]], level: int, tree: Taxonomy, exponent: float) -> np.ndarray:
    """(Share of the leaves below a class / share of its samples) ^ exponent. Without samples, half a one."""
    samples = Counter(row[level] for row in labels if level in row)
    above = {tree.parent(node) for node in range(len(tree))}
    paths = [path(tree, node) for node in range(len(tree)) if node not in above]
    leaves = Counter(columns[tree.levels.index(level)] for columns in paths)
    n = np.array([samples[column] or 0.5 for column in range(tree.widths[level])])
    k = np.array([leaves[column] for column in range(tree.widths[level])])
    return np.asarray(((k / k.sum()) / (n / n.sum())) ** exponent)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stream_is_ridge_regression_on_the_completed_labels_of_every_level(variant: str) -> None:
    method, settings, gamma, expansion, unit, exposed = VARIANTS[variant]
    learner = method(setup(), settings)
    test = exam()[0]
    test_rows = embedded(test, expansion, unit, settings.stages)
    rows: list[np.ndarray] = []  # of all batches so far
    labels: list[dict[int, int]] = []  # by level, as completed when the batch came
    taught: list[dict[int, bool]] = []  # by level, whether the label counts
    met: set[tuple[int, int]] = set()
    for batch, tree in arriving(6):
        assert learner.learn(batch, tree) == {}
        rows.append(embedded(batch.x, expansion, unit, settings.stages))
        now = [
            {h: c for h, c in zip(tree.levels, path(tree, node), strict=True) if c >= 0} for node in batch.y.tolist()
        ]
        labels += now
        taught += [{h: exposed or (h, c) not in met for h, c in row.items()} for row in now]
        met |= {pair for row in now for pair in row.items()}

        predicted = learner.predict(test)
        assert list(predicted) == tree.levels
        for level, width in tree.widths.items():
            there = [i for i, row in enumerate(labels) if level in row]
            Y = np.zeros((len(there), width))
            for place, i in enumerate(there):
                Y[place, labels[i][level]] = taught[i][level]
            fit = Ridge(alpha=gamma, fit_intercept=False, solver="cholesky").fit(np.concatenate(rows)[there], Y)
            scores = test_rows @ np.reshape(fit.coef_, (width, -1)).T
            scores = scores * factors(labels, level, tree, settings.balance)
            np.testing.assert_allclose(
                predicted[level].numpy(), softmax(scores * scores.shape[1] ** 0.5 / 0.3, axis=1), atol=1e-3
            )
    assert len(tree.levels) == 2
    assert any(set(row) == {0, 1} for row in labels), "some labels were completed"


def test_gacil_is_as_wide_as_in_its_repository() -> None:
    assert GacilSettings().expansion == 5000


# -- stages and balance ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings"), [(ACIL, AnalyticSettings()), (GACIL, GacilSettings(expansion=200))], ids=["acil", "gacil"]
)
def test_without_stages_and_balance_the_bits_are_those_of_plain_heads(
    method: type[ACIL], settings: AnalyticSettings
) -> None:
    learner, test = method(setup(), settings), exam()[0]
    f0 = FrozenFeatures(setup().backbone)
    heads = analytic_heads(f0.dim, 0, settings)
    for batch, tree in arriving(6):
        learner.learn(batch, tree)
        heads.grow(tree)
        heads.learn(heads.embed(f0(batch.x)), tree.complete(batch.y), tree.levels)
        wanted = {level: analytic_softmax(z, 0.3) for level, z in heads(heads.embed(f0(test))).items()}
        for level, p in learner.predict(test).items():
            assert torch.equal(p, wanted[level])
    assert learner.state_dict().keys() == {"analytic", "ledger"}, "counts are only kept if they are used"


def test_the_counts_of_balance_survive_a_restart() -> None:
    learner, other = (ACIL(setup(), AnalyticSettings(balance=0.5)) for _ in range(2))
    x, _ = exam()
    for step, (batch, tree) in enumerate(arriving(8)):
        if step == 5:
            other.load_state_dict(learner.state_dict())
        for one in (learner, other) if step >= 5 else (learner,):
            one.learn(batch, tree)
    assert learner.balance is not None
    assert other.balance is not None
    for level, p in learner.predict(x).items():
        assert torch.equal(p, other.predict(x)[level])
        assert torch.equal(learner.balance.N[level], other.balance.N[level])
