"""A classifier of feature vectors with the interface of scikit-learn. Needs the extra `sklearn`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from dhocl.classifier.classifier import Classifier

LEVEL = "class"


class FeatureClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learns from feature vectors in a stream: `partial_fit` may meet new classes at any time.

    Args:
        method: a method on frozen features: amber, acil, gacil, ncm, slda or ranpac.
        settings: of the method, those that differ from its defaults.
        batch: vectors learned in one step.
        random_state: seed of all random draws.

    Attributes:
        classes_: (classes,) sorted; the columns of `predict_proba`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> FeatureClassifier(method="slda").fit(X, y).score(X, y) > 0.9
        True
    """

    def __init__(
        self,
        method: str = "amber",
        settings: dict[str, Any] | None = None,
        batch: int = 32,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.settings = settings
        self.batch = batch
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything, and learn vectors X (n, features) with classes y (n,), once."""
        return self._learn(X, y, None, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn more. With `classes` in the first call, no others may follow."""
        return self._learn(X, y, classes, reset=not hasattr(self, "classifier_"))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the most probable classes."""
        p = self.predict_proba(X)
        found: np.ndarray = self.classes_[p.argmax(1)]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes) calibrated probabilities; 0 for a class that was announced, but not met yet."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32)
        model, p = self.classifier_.model, np.zeros((len(X), len(self.classes_)))
        x = self.classifier_.vectors(X)
        with model.resting():
            met = model.probabilities(x)[0].double().numpy()
        p[:, np.searchsorted(self.classes_, self.met_)] = met / met.sum(1, keepdims=True)
        return p

    def _learn(self, X: Any, y: Any, classes: Any, reset: bool) -> Self:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float32)
        check_classification_targets(y)
        if reset:
            self.classifier_ = Classifier(
                [LEVEL],
                method=self.method,
                backbone=f"features:{X.shape[1]}",
                batch=self.batch,
                flip=False,
                seed=self.random_state,
                settings=self.settings,
            )
            self.met_ = y[:0]  # classes by order of arrival, as the model numbers them
            self.announced_ = None if classes is None else unique_labels(classes)
        new = y[np.sort(np.unique(y, return_index=True)[1])]
        if self.announced_ is not None and (unknown := np.setdiff1d(new, self.announced_)).size:
            raise ValueError(f"the class {unknown[0]} was not among `classes` of the first call")
        self.met_ = np.concatenate([self.met_, new[~np.isin(new, self.met_)]])
        self.classes_ = unique_labels(self.met_) if self.announced_ is None else self.announced_
        number = {value: str(place) for place, value in enumerate(self.met_.tolist())}
        self.classifier_.learn_features(X, [(number[value], LEVEL) for value in y.tolist()])
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | ({"classifier_": self.classifier_.state_dict()} if "classifier_" in state else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "classifier_" in state:
            self.classifier_ = Classifier.from_state(state["classifier_"])
