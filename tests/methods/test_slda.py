"""Streaming linear discriminant analysis against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.errors import InputError
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.slda import SLDA, SldaSettings, covariance
from tests.helpers.reference_closed_form import Samples, features, followed, revised_stream


def slow_covariance(samples: Samples, level: int, tree: Taxonomy) -> np.ndarray:
    """Within labels, by the share of samples with a class here, and of the labels' means within their class."""
    known, everything, nodes = samples.at(level, tree), np.array(samples.phi), np.array(samples.nodes)
    scatter = np.zeros((everything.shape[1],) * 2)
    of_label = {node: everything[nodes == node].mean(0) for node in set(samples.nodes)}
    ranks = np.array([tree.labels[node].level for node in samples.nodes])
    for rank in set(ranks.tolist()):
        share = (ranks[known.rows] == rank).sum() / (ranks == rank).sum()
        for i in np.flatnonzero(ranks == rank):
            apart = everything[i] - of_label[nodes[i]]
            scatter += share * np.outer(apart, apart)
    for i, column in zip(known.rows, known.columns, strict=True):
        apart = of_label[nodes[i]] - known.phi[known.columns == column].mean(0)
        scatter += np.outer(apart, apart)
    return scatter / max(1, len(known.rows))


@pytest.mark.parametrize(("shrinkage", "tau"), [(1e-4, 1.0), (0.2, 0.5)])
def test_it_equals_discriminant_analysis_of_all_samples_by_the_present_tree(shrinkage: float, tau: float) -> None:
    learner, x = SLDA(setup(), SldaSettings(shrinkage, tau)), exam()[0]
    test, partly = features(x), 0
    for samples, tree, predicted in followed(learner, x):
        for level, width in tree.widths.items():
            sigma = slow_covariance(samples, level, tree)
            partly += len(samples.at(level, tree).rows) < sum(tree.labels[n].level >= level for n in samples.nodes)
            inverse = np.linalg.inv((1 - shrinkage) * sigma + shrinkage * np.eye(len(sigma)))
            _, phi, columns = samples.at(level, tree)
            logits = np.full((len(x), width), -np.inf)
            for column in set(columns.tolist()):
                w = inverse @ (mean := phi[columns == column].mean(0))
                logits[:, column] = (test @ w - mean @ w / 2) / tau
            np.testing.assert_allclose(predicted[level].numpy(), softmax(logits, axis=1), atol=2e-3)
    assert partly > 3, "labels without a class at a coarser level"
    assert len(tree.levels) == 3


def test_it_equals_scikit_learn_where_every_sample_has_a_class() -> None:
    """There the identity is scaled by the mean variance, and classes have priors."""
    epsilon, x, samples = 0.01, exam()[0], Samples()
    learner = SLDA(setup(), SldaSettings(epsilon))
    for batch, tree in revised_stream():
        learner.learn(batch, tree)
        samples.add(batch)
    for level in (1, 2):  # with three classes or more, as scikit-learn has another form for two
        _, phi, columns = samples.at(level, tree)
        assert len(columns) == sum(tree.labels[node].level >= level for node in samples.nodes)
        assert len(set(columns.tolist())) >= 3
        sigma = covariance(learner.statistics, level, TreeTable.of(tree)).numpy()
        ratio = epsilon / (1 - epsilon) / (np.trace(sigma) / len(sigma))
        shrinkage = ratio / (1 + ratio)
        fit = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(phi, columns)
        scores = features(x) @ fit.coef_.T + fit.intercept_ - np.log(fit.priors_)
        expected = softmax(scores * (1 - shrinkage) / (1 - epsilon), axis=1)
        np.testing.assert_allclose(learner.predict(x)[level][:, fit.classes_].numpy(), expected, atol=2e-3)


def test_the_covariance_is_exact_if_all_labels_have_a_class() -> None:
    learner = SLDA(setup(), SldaSettings())
    batches = stream(12)
    tree = feed(learner, batches).taxonomy
    samples = Samples()
    for x, labels in batches:
        samples.phi += list(features(x))
        samples.nodes += [tree.id(label) for label in labels]
    for level in tree.levels:
        _, phi, columns = samples.at(level, tree)
        within = phi - np.array([phi[columns == column].mean(0) for column in columns])
        sigma = covariance(learner.statistics, level, TreeTable.of(tree))
        np.testing.assert_allclose(sigma.numpy(), within.T @ within / len(within), atol=1e-6)
        assert sigma.dtype == torch.float64


def test_a_shrinkage_that_leaves_the_covariance_singular_is_refused_with_the_reason() -> None:
    learner = SLDA(setup(), SldaSettings(shrinkage=1e-12))
    feed(learner, stream(2))
    with pytest.raises(InputError, match="raise `settings` shrinkage"):
        learner.predict(exam()[0])


def test_it_learns_and_separates_the_leaves() -> None:
    learner = SLDA(setup(), SldaSettings())
    tree = feed(learner, stream(30)).taxonomy
    x, leaves = exam()
    names = [tree.labels[node].name for node in tree.nodes(1).tolist()]
    predicted = [names[column] for column in learner.predict(x)[1].argmax(1).tolist()]
    truth = np.array(["robin", "crow", "cod", "carp"])[leaves.numpy()]
    assert (np.array(predicted) == truth).mean() > 0.9
