"""The same learner for people who have their own images and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dhocl import backbones, checkpoint
from dhocl.backbones import Backbone
from dhocl.config import find_method, method_settings
from dhocl.data.images import square
from dhocl.decode import best_path, folded
from dhocl.errors import InputError
from dhocl.knowledge import Chain, Curator, KnowledgeSource, Oracle, Silent, open_tree
from dhocl.learner import Batch, Learner, Setup
from dhocl.taxonomy import UNKNOWN, Label, Taxonomy

CHUNK = 250  # images predicted at once


class Guess(NamedTuple):
    name: str
    probability: float


class Prediction(NamedTuple):
    levels: dict[str, Guess]  # the best class of each level, judged by itself
    path: dict[str, str]  # the most probable path of the known tree: level -> name
    probability: float  # of that path


class Classifier:
    """Learns from images named at any level, in any order, and predicts at every level.

    `levels` names the ranks, coarsest first. What lies above what is told by `tree` (a `tree.tsv` file), by a
    knowledge source (`dhocl.knowledge`; with both, it is asked what the tree does not tell), or by hand with `link`; a
    class about which nothing is told is still learned. `link`, `add`, `rename` and `merge` revise it at any time.
    """

    def __init__(
        self,
        levels: Sequence[str],
        *,
        tree: str | Path | None = None,
        source: KnowledgeSource | None = None,
        method: str = "halo",
        backbone: str | Backbone = "efficientnet_lite0",
        image_size: int = 96,
        buffer: int = 1000,
        batch: int = 32,
        replay_batch: int = 16,
        flip: bool = True,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if len(set(levels)) != len(levels) or not levels:
            raise InputError(f"levels must be different names, coarsest first, not {list(levels)}")
        if min(batch, image_size) < 1 or min(buffer, replay_batch, seed) < 0:
            raise InputError("batch and image_size must be at least 1; buffer, replay_batch and seed not negative")
        truth = open_tree(tree, levels) if tree is not None else None
        self._options = {
            "levels": list(levels),
            "method": method,
            "backbone": backbone if isinstance(backbone, str) else None,
            "image_size": image_size,
            "buffer": buffer,
            "batch": batch,
            "replay_batch": replay_batch,
            "flip": flip,
            "seed": seed,
            "settings": settings or {},
        }
        self._sourced = source is not None
        self._truth = truth
        self.levels = tuple(levels)
        self._size = image_size
        self._batch = batch
        network = backbones.load(backbone) if isinstance(backbone, str) else backbone
        setup = Setup(network, buffer, replay_batch, flip, seed)
        chosen = method_settings(method, settings or {})
        self._learner: Learner = find_method(method).learner(setup, chosen)  # type: ignore[call-arg]
        self._curator = Curator(_asked(truth, source), delay=0, ask_again=self._sourced)

    @property
    def taxonomy(self) -> Taxonomy:
        """The tree as known so far."""
        return self._curator.taxonomy

    def learn(self, images: Any, labels: Iterable[tuple[str, str]]) -> None:
        """Learn from images, once: `labels` are (name, level) such as ("robin", "species")."""
        x = self._pixels(images)
        named = [self._label(label) for label in labels]
        if len(x) != len(named):
            raise InputError(f"{len(x)} images, but {len(named)} labels: give one label an image")
        for start in range(0, len(x), self._batch):
            y = self._curator.observe(named[start : start + self._batch])
            self._learner.learn(Batch(x[start : start + self._batch], y), self.taxonomy)

    def predict(self, images: Any) -> list[Prediction]:
        """What each image shows, at every level."""
        if not len(self.taxonomy):
            raise InputError("nothing is learned yet: call learn first")
        found: list[Prediction] = []
        for x in torch.split(self._pixels(images), CHUNK):
            probabilities = folded(self._learner.predict(x), self.taxonomy)
            best = {level: p.max(1) for level, p in probabilities.items()}
            paths, scores = best_path(probabilities, self.taxonomy)
            for row in range(len(x)):
                guesses = {
                    self.levels[level]: Guess(self._name(level, int(top.indices[row])), float(top.values[row]))
                    for level, top in best.items()
                }
                path = {
                    self.levels[level]: self._name(level, column)
                    for level, column in zip(self.taxonomy.levels, paths[row].tolist(), strict=True)
                    if column != UNKNOWN
                }
                found.append(Prediction(guesses, path, float(scores[row])))
        return found

    def link(self, child: tuple[str, str], parent: tuple[str, str]) -> None:
        """Tell by hand that `child` lies below `parent`; both are (name, level) and must have been learned."""
        with _told():
            self.taxonomy.link(self._node(child), self._node(parent))
            self._curator.settle(self._node(child))

    def add(self, label: tuple[str, str], parent: tuple[str, str]) -> None:
        """Announce a class below a known one before its first image, such as one that another was split into."""
        named = self._label(label)
        if named in self.taxonomy:
            raise InputError(f"{named} is there already: link it")
        with _told():
            if self.taxonomy.labels[self._node(parent)].level >= named.level:
                raise InputError(f"{named} can not lie below {self._label(parent)}: a parent's level is smaller")
            self.taxonomy.add(named)
            self.link(label, parent)

    def rename(self, label: tuple[str, str], name: str) -> None:
        """Give a class another name of its level. Images that come with the old one still count for it."""
        with _told():
            self.taxonomy.rename(self._node(label), self._label((name, label[1])))

    def merge(self, label: tuple[str, str], into: tuple[str, str]) -> None:
        """Two classes of a level are one, such as a synonym and its accepted name: all goes to `into` from now on."""
        with _told():
            self.taxonomy.merge(self._node(label), self._node(into))

    def save(self, folder: str | Path) -> None:
        """Everything, so that `load` goes on exactly as this would."""
        state = {
            "options": self._options,
            "sourced": self._sourced,
            "tree": self._truth.dumps() if self._truth else None,
            "curator": self._curator.state_dict(),
            "learner": self._learner.state_dict(),
        }
        checkpoint.save(Path(folder), state)

    @classmethod
    def load(
        cls, folder: str | Path, *, source: KnowledgeSource | None = None, backbone: Backbone | None = None
    ) -> Classifier:
        """A saved classifier. A knowledge source or a backbone of your own is not saved and must be given again."""
        state = checkpoint.load_newest(Path(folder))
        if state is None:
            raise InputError(f"{folder} holds no whole classifier: give the folder that `save` wrote")
        options = dict(state["options"])
        if state["sourced"] and source is None:
            raise InputError(f"the classifier in {folder} had a knowledge source of its own: give it as source=")
        if options["backbone"] is None and backbone is None:
            raise InputError(f"the classifier in {folder} had a backbone of its own: give it as backbone=")
        options["backbone"] = backbone or options["backbone"]
        classifier = cls(options.pop("levels"), source=source, **options)
        if state["tree"] is not None:
            classifier._truth = Taxonomy.loads(state["tree"])
            classifier._curator.source = _asked(classifier._truth, source)
        classifier._curator.load_state_dict(state["curator"])
        classifier._learner.load_state_dict(state["learner"])
        return classifier

    def _label(self, label: tuple[str, str]) -> Label:
        if isinstance(label, str) or len(label) != 2:
            raise InputError(f"the label {label!r} is not a pair: write it as (name, level)")
        name, level = label
        if level not in self.levels:
            raise InputError(f"{name!r} has the unknown level {level!r}: choose of {', '.join(self.levels)}")
        return Label(name, self.levels.index(level))

    def _node(self, label: tuple[str, str]) -> int:
        return self.taxonomy.id(self._label(label))

    def _name(self, level: int, column: int) -> str:
        return self.taxonomy.labels[int(self.taxonomy.nodes(level)[column])].name

    def _pixels(self, images: Any) -> Tensor:
        """Paths, PIL images or arrays, or a single one -> (n, 3, size, size) uint8."""
        single = isinstance(images, (str, Path, Image.Image)) or getattr(images, "ndim", 4) == 3
        pixels = [_pixels(image, self._size, place) for place, image in enumerate([images] if single else images)]
        if not pixels:
            raise InputError("no image given")
        return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous()


def _pixels(image: Any, size: int, place: int) -> np.ndarray:
    """One image, whatever it is given as -> (size, size, 3) uint8."""
    if isinstance(image, (str, Path)):
        if not Path(image).is_file():
            raise InputError(f"image {place}: there is no file {image}")
        return square(Path(image), size, f"image {place} ({image})")
    if isinstance(image, Image.Image):
        return square(image, size, f"image {place}")
    return square(Image.fromarray(_bytes(np.asarray(image), place)), size, f"image {place}")


def _bytes(array: np.ndarray, place: int) -> np.ndarray:
    """An array as (H, W, 3) uint8."""
    if array.ndim == 3 and array.shape[0] == 3 and array.shape[2] != 3:  # as torch has them
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] != 3:
        raise InputError(f"image {place} has shape {array.shape}: expected height x width x 3 (RGB)")
    if array.size == 0:
        raise InputError(f"image {place} is empty: its shape is {array.shape}")
    if array.dtype != np.uint8:
        if not np.isfinite(array).all():
            raise InputError(f"image {place} holds NaN or infinite values")
        if array.min() < 0 or array.max() > 1:
            raise InputError(f"image {place} is {array.dtype} outside 0..1: give uint8, or floats from 0 to 1")
        array = (array * 255).round().astype(np.uint8)
    return np.ascontiguousarray(array)


@contextmanager
def _told() -> Iterator[None]:
    """What the taxonomy refuses is the user's to mend."""
    try:
        yield
    except (KeyError, ValueError) as error:
        raise InputError(str(error.args[0])) from None


def _asked(truth: Taxonomy | None, source: KnowledgeSource | None) -> KnowledgeSource:
    if source is None:
        return Silent() if truth is None else Oracle(truth)
    return source if truth is None else Chain(Oracle(truth), source)
