"""A model for people who have their own images and names."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dhocl.classifier.evaluation import Evaluation, Evaluator
from dhocl.classifier.inputs import as_label, as_labels, as_pixels
from dhocl.classifier.prediction import FALSE_ALARMS, Prediction, name_predictions
from dhocl.classifier.restriction import restrict
from dhocl.classifier.suggested import Suggested, name_suggestions
from dhocl.core import checkpoint, outside
from dhocl.core.decode import Decoding, restricted
from dhocl.core.errors import InputError, check_choice, check_least, usable
from dhocl.core.files import locked
from dhocl.core.precision import Precision
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.vectors import read_vectors
from dhocl.knowledge import KnowledgeSource, open_tree
from dhocl.model import Model, ModelConfig, Revision
from dhocl.model.suggest import Suggestion
from dhocl.nn.learner import Learner

AT_ONCE = 250  # images predicted at once


class Classifier:
    """Learns from images labelled at any level, in any order, and predicts at every level.

    Args:
        levels: names of the levels, coarsest first, such as `["family", "genus", "species"]`.
        tree: a `tree.tsv` file that says what lies below what.
        source: a knowledge source (`dhocl.knowledge`) that is asked about classes that `tree` does not have.
        method: a name of `dhocl list methods`, `module:Class`, or a class derived from `Learner`.
        backbone: a name of `dhocl list backbones`, `module:function`, or a network (see `dhocl.backbones.wrap`);
            `features:512` for vectors of 512 numbers instead of images (`learn_features`).
        image_size: images are scaled to squares of this side.
        buffer: images that may be kept for replay.
        batch: images learned in one step.
        replay_batch: images replayed in each step.
        flip: whether a mirrored image still shows its class.
        seed: of all random draws.
        calibrate: predict each batch before it is learned, and calibrate the probabilities by it.
        settings: of the method, those that differ from its defaults.
        device: where to compute: `cpu`, `cuda`, `cuda:1`; `auto` is a GPU if there is one.
        precision: `bfloat16` computes the backbone in mixed precision, on GPUs that are faster with it.

    A class that neither `tree` nor `source` knows is learned all the same. `link`, `unlink`, `add`, `rename` and
    `merge` revise the tree at any time. `learned` holds the ids of the files that `dhocl learn` has learned.

    Example:
        >>> import numpy as np
        >>> from dhocl import Classifier
        >>> red, blue = np.zeros((2, 32, 32, 3), dtype=np.uint8)
        >>> red[..., 0], blue[..., 2] = 255, 255
        >>> classifier = Classifier(["kind", "species"], method="acil", backbone="tiny", image_size=32)
        >>> classifier.learn([red, blue], [("robin", "species"), ("tit", "species")])
        >>> classifier.learn([red], [("bird", "kind")])
        >>> classifier.link(("robin", "species"), ("bird", "kind"))
        >>> classifier.predict(red)[0].path
        {'kind': 'bird', 'species': 'robin'}
        >>> classifier
        Classifier(acil, levels kind > species, 3 classes)
    """

    def __init__(
        self,
        levels: Sequence[str],
        *,
        tree: str | Path | None = None,
        source: KnowledgeSource | None = None,
        method: str | type[Learner] = "amber",
        backbone: str | nn.Module = "efficientnet_lite0",
        image_size: int = 96,
        buffer: int = 1000,
        batch: int = 32,
        replay_batch: int = 16,
        flip: bool = True,
        seed: int = 0,
        calibrate: bool = True,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        precision: Precision = "float32",
    ) -> None:
        check_least("batch", batch, 1)
        config = ModelConfig(
            levels if isinstance(levels, str) else tuple(levels),  # type: ignore[arg-type]  # text is refused there
            method=outside.spell(method),
            backbone=backbone if isinstance(backbone, str) else None,
            image_size=image_size,
            buffer=buffer,
            replay_batch=replay_batch,
            flip=flip,
            seed=seed,
            calibrate=calibrate,
            settings=settings or {},
            precision=precision,
        )
        self.model = Model(
            config,
            tree=open_tree(tree, levels) if tree is not None else None,
            source=source,
            backbone=None if isinstance(backbone, str) else backbone,
            device=device,
        )
        self.batch = batch
        self.learned = torch.empty(0, dtype=torch.long)

    def __repr__(self) -> str:
        return f"Classifier{repr(self.model).removeprefix('Model')}"

    @property
    def levels(self) -> tuple[str, ...]:
        return self.model.config.levels

    @property
    def taxonomy(self) -> Taxonomy:
        """The tree as known so far."""
        return self.model.taxonomy

    def learn(self, images: Any, labels: Iterable[tuple[str, str]]) -> None:
        """Learn from images, once.

        Args:
            images: paths, PIL images, arrays (H, W, 3) or tensors (3, H, W), or a batch of these.
            labels: a pair (name, level) for each image, such as `("robin", "species")`.
        """
        self._learn(self.pixels(images), labels)

    def learn_features(self, features: Any, labels: Iterable[tuple[str, str]]) -> None:
        """Learn from feature vectors of an encoder of your own, once. The backbone must be `features:DIM`.

        Args:
            features: an array or tensor (n, DIM), or a `.npy` or Parquet file of one.
            labels: a pair (name, level) for each vector.

        Example:
            >>> classifier = Classifier(["species"], backbone="features:2", method="acil")
            >>> classifier.learn_features([[1, 0], [0, 1]], [("robin", "species"), ("tit", "species")])
            >>> classifier.predict_features([[0.9, 0.2]])[0].path
            {'species': 'robin'}
        """
        self._learn(self.vectors(features), labels)

    def forget(self, images: Any, labels: Iterable[tuple[str, str]]) -> None:
        """Undo `learn` for some images, all or none (see [Corrections](../corrections.md)).

        Args:
            images: as for `learn`, or as for `learn_features`: the same files, or the same pixels.
            labels: the labels that they were learned with, by any name of the class.

        Images that were not learned so, were forgotten before, or are older than the newest 10,000 are an InputError.

        Example:
            >>> classifier = Classifier(["species"], backbone="features:2", method="ncm")
            >>> x = [[1, 0], [0, 1], [0.9, 0.1]]
            >>> classifier.learn_features(x, [("robin", "species"), ("tit", "species"), ("tit", "species")])
            >>> classifier.relabel(x[2:], [("tit", "species")], [("robin", "species")])
            >>> classifier.forget(x[:1], [("robin", "species")])
            >>> classifier.forget(x[:1], [("robin", "species")])
            Traceback (most recent call last):
            dhocl.core.errors.InputError: sample 0 was not learned as robin, was forgotten before, ...
        """
        x = self._inputs(images)
        self.model.forget(x, as_labels(labels, self.levels, len(x)))

    def relabel(self, images: Any, old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]) -> None:
        """Learn images with other labels: `forget` them with the old ones, then `learn` them with the new ones."""
        x = self._inputs(images)
        named = as_labels(new, self.levels, len(x))
        self.model.forget(x, as_labels(old, self.levels, len(x)))
        self._observe(x, named)

    def predict(
        self,
        images: Any,
        *,
        decode: Decoding = "path",
        top: int = 1,
        within: str | None = None,
        among: str | Path | Iterable[str] | None = None,
        false_alarms: float = FALSE_ALARMS,
    ) -> list[Prediction]:
        """What each image shows, at every level met so far.

        Args:
            images: as for `learn`.
            decode: "path" predicts classes on one path of the tree, "level" treats the levels as independent.
            top: classes per level; all but the first are `alternatives`.
            within: predict only classes of this clade, such as `"Corvidae"`, or `"family:Corvidae"` if several levels
                have the name.
            among: predict only classes that are listed here: names, or a file of names (`dhocl.data.checklist`).
            false_alarms: share of the images of known classes that may be called `new`; 0 for none.

        With `within` or `among`, probabilities are divided by the sum over the known paths that are inside.
        """
        return self._predict(self.pixels(images), decode, top, within, among, false_alarms)

    def predict_features(
        self,
        features: Any,
        *,
        decode: Decoding = "path",
        top: int = 1,
        within: str | None = None,
        among: str | Path | Iterable[str] | None = None,
        false_alarms: float = FALSE_ALARMS,
    ) -> list[Prediction]:
        """`predict` for feature vectors."""
        return self._predict(self.vectors(features), decode, top, within, among, false_alarms)

    def evaluate(self, images: Any, labels: Iterable[tuple[str, str]], *, decode: Decoding = "path") -> Evaluation:
        """Compare predictions with labels.

        Args:
            images: as for `learn`, or as for `learn_features`.
            labels: a pair (name, level) for each image. What lies above a label follows from the tree.
            decode: as for `predict`.

        Images of classes that were never learned are counted apart.
        """
        x = self._inputs(images)
        named = as_labels(labels, self.levels, len(x))
        check_choice("decode", decode, ("level", "path"))
        evaluator = Evaluator(self.taxonomy, self.levels, decode)
        with self.model.resting():
            for start in range(0, len(x), AT_ONCE):
                truths = [{label.level: label.name} for label in named[start : start + AT_ONCE]]
                evaluator.add(self.model.beliefs(x[start : start + AT_ONCE]), truths)
        return evaluator.result()

    def suggest(self, images: Any, count: int = 12) -> list[Suggested]:
        """Which of these images to label next, best first, and at which level.

        Args:
            images: as for `learn`, or as for `learn_features`. Time and memory grow with their square: 2,000 take
                seconds, and more than 10,000 should be sampled first.
            count: images to suggest, at most.

        An image is worth a label if the model doubts what it shows, and many others that it doubts look like it,
        but nothing that it has learned, and no other suggestion. See docs/suggestions.md.
        """
        check_least("count", count, 1)
        x = self.pixels(images) if self.model.backbone.takes_images else self.vectors(images)
        with self.model.resting():
            return self.named_suggestions(x, self.model.suggest(x, count))

    def named_suggestions(self, x: Tensor, found: Sequence[Suggestion]) -> list[Suggested]:
        """With predictions: x (n, 3, size, size) uint8, or the features of which `found` are rows."""
        known = len(self.taxonomy) > 0
        rows = x[[each.row for each in found]]
        predictions = name_predictions(self.model.beliefs(rows), self.taxonomy, self.levels) if known else None
        return name_suggestions(found, predictions or [None] * len(found), self.levels)

    def probabilities(self, images: Any, *, decode: Decoding = "path") -> dict[int, Tensor]:
        """(images, classes) per level, by path or with levels independent; classes as in `taxonomy.nodes(level)`."""
        with self.model.resting():
            return self.model.probabilities(self.pixels(images), decode)

    def reader(self) -> Classifier:
        """A copy for prediction, which stays as it is while this one learns on, in another thread if need be."""
        twin = copy.copy(self)
        twin.model = self.model.reader()
        return twin

    def link(self, child: tuple[str, str], parent: tuple[str, str]) -> None:
        """Put `child` below `parent`; both are (name, level) of known classes."""
        self.model.revise(Revision("link", self._label(child), self._label(parent)))

    def unlink(self, child: tuple[str, str]) -> None:
        """Take a class out of its parent."""
        self.model.revise(Revision("unlink", self._label(child)))

    def add(self, label: tuple[str, str], parent: tuple[str, str]) -> None:
        """Announce a class below a known one before its first image, such as one that another was split into."""
        self.model.revise(Revision("add", self._label(label), self._label(parent)))

    def rename(self, label: tuple[str, str], name: str) -> None:
        """Give a class another name. Labels with the old name still count for it."""
        self.model.revise(Revision("rename", self._label(label), self._label((name, label[1]))))

    def merge(self, label: tuple[str, str], into: tuple[str, str]) -> None:
        """Make two classes of a level one, such as a synonym and its accepted name: all counts for `into` from now."""
        self.model.revise(Revision("merge", self._label(label), self._label(into)))

    def save(self, folder: str | Path) -> None:
        """Write everything, so that `load` goes on exactly as this would. `dhocl serve --model` opens it too."""
        with locked(Path(folder)):
            if (Path(folder) / "config.json").exists() or (Path(folder) / "journal.sqlite").exists():
                raise InputError(f"{folder} is the folder of a run or of a service: save in another one")
            checkpoint.save(Path(folder) / "checkpoints", self.state_dict())

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        source: KnowledgeSource | None = None,
        backbone: nn.Module | None = None,
        device: str = "auto",
    ) -> Classifier:
        """The model in a folder of `save`, `dhocl learn`, `run` or `serve`, also while a service writes to it.

        The folder is not changed, except that a damaged checkpoint is renamed to `.damaged`. A knowledge source or a
        backbone of your own is not saved and must be given again. `device` may be another than it was saved on.
        """
        state = checkpoint.load_newest(Path(folder) / "checkpoints")
        if state is None:
            raise InputError(
                f"{folder} holds no model: give a folder that dhocl learn, run, serve or Classifier.save wrote"
            )
        with usable(Path(folder), checkpoint.ADVICE):
            if state["model"]["sourced"] and source is None:
                raise InputError(f"the model in {folder} had a knowledge source of its own: give it as source=")
            return cls.from_state(state, source=source, backbone=backbone, device=device)

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        *,
        source: KnowledgeSource | None = None,
        backbone: nn.Module | None = None,
        device: str = "auto",
    ) -> Classifier:
        """A classifier from what `state_dict` returned."""
        classifier = cls.__new__(cls)
        classifier.model = Model.from_state(state["model"], source=source, backbone=backbone, device=device)
        classifier.batch = state.get("batch", 32)
        classifier.learned = state.get("learned", torch.empty(0, dtype=torch.long))
        return classifier

    def state_dict(self) -> dict[str, Any]:
        """What `save` writes: nested dicts of tensors and JSON values."""
        return {"model": self.model.state_dict(), "batch": self.batch, "learned": self.learned}

    def pixels(self, images: Any) -> Tensor:
        """Images as `learn` takes them -> (n, 3, size, size) uint8."""
        if not self.model.backbone.takes_images:
            raise InputError("this model takes feature vectors, not images: use learn_features and predict_features")
        return as_pixels(images, self.model.config.image_size)

    def vectors(self, features: Any) -> Tensor:
        """Feature vectors as `learn_features` takes them -> (n, dim, 1, 1) float32."""
        backbone = self.model.backbone
        if backbone.takes_images:
            raise InputError("this model takes images: for feature vectors, make one with backbone='features:DIM'")
        return read_vectors(features, backbone.dim)[:, :, None, None]

    def _label(self, label: tuple[str, str]) -> Label:
        return as_label(label, self.levels)

    def _inputs(self, images: Any) -> Tensor:
        return self.pixels(images) if self.model.backbone.takes_images else self.vectors(images)

    def _learn(self, x: Tensor, labels: Iterable[tuple[str, str]]) -> None:
        self._observe(x, as_labels(labels, self.levels, len(x)))

    def _observe(self, x: Tensor, named: list[Label]) -> None:
        for start in range(0, len(x), self.batch):
            self.model.observe(x[start : start + self.batch], named[start : start + self.batch])

    def _predict(
        self,
        x: Tensor,
        decode: Decoding,
        top: int,
        within: str | None,
        among: str | Path | Iterable[str] | None,
        false_alarms: float,
    ) -> list[Prediction]:
        check_choice("decode", decode, ("level", "path"))
        check_least("top", top, 1)
        inside = restrict(self.taxonomy, self.levels, within, among).inside(self.taxonomy)
        found: list[Prediction] = []
        with self.model.resting():
            for part in torch.split(x, AT_ONCE):
                beliefs = restricted(self.model.beliefs(part), inside)
                found += name_predictions(beliefs, self.taxonomy, self.levels, decode, top, false_alarms)
        return found
