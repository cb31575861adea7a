"""scikit-learn's own checks: none is left out. Two need packages that are not installed, and skip themselves."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from dhocl.classifier.estimator import FeatureClassifier


@parametrize_with_checks([FeatureClassifier(method="acil")])
def test_scikit_learn_agrees(estimator: FeatureClassifier, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> Any:
    return train_test_split(*load_digits(return_X_y=True), random_state=0)


def test_a_stream_with_new_classes(digits: Any) -> None:
    X, X_test, y, y_test = digits
    estimator = FeatureClassifier()
    order = np.argsort(y, kind="stable")
    for part in np.array_split(order, 5):  # two digits at a time
        estimator.partial_fit(X[part], y[part])
        assert estimator.classes_.tolist() == sorted(set(y[order[: 1 + np.flatnonzero(order == part[-1])[0]]].tolist()))
    assert estimator.score(X_test, y_test) > 0.9
    again = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(again.predict_proba(X_test), estimator.predict_proba(X_test))


def test_classes_may_be_announced(digits: Any) -> None:
    X, _, y, _ = digits
    few = y < 3
    estimator = FeatureClassifier(method="slda").partial_fit(X[few], y[few], classes=np.arange(5))
    p = estimator.predict_proba(X[few])
    assert p.shape[1] == 5
    assert (p[:, 3:] == 0).all()
    assert np.allclose(p.sum(1), 1)
    with pytest.raises(ValueError, match="the class 7 was not among `classes`"):
        estimator.partial_fit(X[y == 7], y[y == 7])


def test_classes_are_text_too(digits: Any) -> None:
    X, _, y, _ = digits
    names = np.array([f"digit {value}" for value in y])
    estimator = FeatureClassifier(method="acil", batch=100).fit(X, names)
    assert estimator.score(X, names) > 0.8
    assert estimator.classes_.tolist() == sorted(set(names.tolist()))
