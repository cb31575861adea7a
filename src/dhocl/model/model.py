"""Learner, curator, taxonomy, decoding and calibration behind one interface of tensors and labels."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from dhocl.core.decode import Beliefs, Decoding, believe, merge_synonyms
from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.core.joining import Contradiction, join
from dhocl.core.precision import Precision
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.knowledge import Background, Chain, Curator, KnowledgeSource, Oracle, Silent, Statement
from dhocl.knowledge.source import is_slow
from dhocl.methods.registry import find_method, method_settings
from dhocl.model.calibration import Calibration
from dhocl.model.novelty import Novelty
from dhocl.model.suggest import Looks, Suggestion, suggest
from dhocl.nn import backbones
from dhocl.nn.learner import Batch, Learner, Setup
from dhocl.nn.ledger import REMEMBERED, Ledger, content_keys

AT_ONCE = 250  # images that `suggest` predicts at once


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of. It is stored with the model.

    Args:
        levels: names of the levels, coarsest first.
        method: see `dhocl list methods`.
        backbone: see `dhocl list backbones`; None for one that is given as an object.
        image_size: side in pixels of the images it learns from.
        buffer: images that may be kept for replay.
        replay_batch: images replayed with each batch.
        flip: whether a mirrored image still shows its class.
        seed: of all random draws.
        settings: of the method, those that differ from its defaults.
        samples: length of the stream; None if it is not known.
        delay: batches until the answer about a new class counts.
        calibrate: predict each batch before it is learned, and calibrate the probabilities by it.
        precision: `bfloat16` computes the backbone in mixed precision, on GPUs that are faster with it. What is learned
            stays in float32.
    """

    levels: tuple[str, ...]
    method: str = "amber"
    backbone: str | None = "efficientnet_lite0"
    image_size: int = 96
    buffer: int = 1000
    replay_batch: int = 16
    flip: bool = True
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    samples: int | None = None
    delay: float = 0
    calibrate: bool = True
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.levels, str):
            raise InputError(f"`levels` {self.levels!r} is text: give a list of names, coarsest first")
        names = self.levels
        if not names or not all(names) or len(set(names)) < len(names):
            raise InputError(f"`levels` {self.levels!r}: different names, coarsest first")
        check_least("image_size", self.image_size, 1)
        check_choice("precision", self.precision, get_args(Precision))
        for name in ("buffer", "replay_batch", "seed"):
            check_least(name, getattr(self, name), 0)

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        return fields | {"levels": list(self.levels), "delay": "inf" if math.isinf(self.delay) else self.delay}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ModelConfig:
        return cls(**fields | {"levels": tuple(fields["levels"]), "delay": float(fields["delay"])})


class Revision(NamedTuple):
    """A change of the tree by hand.

    | kind   | label                 | other           |
    |--------|-----------------------|-----------------|
    | link   | child                 | parent          |
    | unlink | child                 | -               |
    | add    | class without image   | parent          |
    | rename | class                 | its new name    |
    | merge  | class                 | class to become |
    """

    kind: Literal["link", "unlink", "add", "rename", "merge"]
    label: Label
    other: Label | None = None


class Observation(NamedTuple):
    """Returned by `Model.observe`."""

    stats: dict[str, float]  # of the learner's step
    before: Beliefs | None  # what was predicted of the batch before it was learned; None without calibration


class Model:
    """The object that learns. It knows nothing of files, HTTP, image formats or experiments.

    Args:
        config: what it is made of.
        tree: a tree to look up new classes in.
        source: a knowledge source to ask about new classes that `tree` does not have.
        backbone: a network instead of the one that `config` names.
        curator: instead of one made from `tree`, `source` and `config.delay`, for experiments with wrong answers.
        device: where it computes: `cpu`, `cuda`, `cuda:1`; `auto` is a GPU if there is one. It is not stored with the
            model. Images, labels and beliefs are on the CPU.

    Example:
        >>> import torch
        >>> from dhocl import Label, Model, ModelConfig
        >>> model = Model(ModelConfig(("kind", "species"), method="acil", backbone="tiny", image_size=32))
        >>> x = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> _ = model.observe(x, [Label("bird", 0), Label("robin", 1), Label("fish", 0), Label("pike", 1)])
        >>> model.revise(Revision("link", Label("robin", 1), Label("bird", 0)))
        >>> {level: tuple(p.shape) for level, p in model.probabilities(x).items()}
        {0: (4, 2), 1: (4, 2)}
        >>> model
        Model(acil, levels kind > species, 4 classes)
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        tree: Taxonomy | None = None,
        source: KnowledgeSource | None = None,
        backbone: nn.Module | None = None,
        curator: Curator | None = None,
        device: str = "auto",
    ) -> None:
        settings = method_settings(config.method, config.settings)
        if backbone is None and config.backbone is None:
            raise InputError("this model had a backbone of its own: give it as backbone=")
        self.config = config
        self.tree = tree
        self.source = source
        self.backbone = backbones.load(str(config.backbone) if backbone is None else backbone, device)
        self.backbone.precision = config.precision
        setup = Setup(self.backbone, config.buffer, config.replay_batch, config.flip, config.seed, config.samples)
        self.learner: Learner = find_method(config.method).learner(setup, settings)  # type: ignore[call-arg]
        self.curator = curator or Curator(_joined(tree, source), config.delay, retry=source is not None)
        self.calibration = Calibration()
        self.ledger = Ledger()
        self.novelty = Novelty()
        self._is_reader = False

    def __repr__(self) -> str:
        levels, classes = " > ".join(self.config.levels), sum(1 for _ in self.taxonomy)
        return f"Model({self.config.method}, levels {levels}, {classes} classes)"

    @property
    def taxonomy(self) -> Taxonomy:
        """The tree as known so far."""
        return self.curator.taxonomy

    def observe(self, x: Tensor, labels: Sequence[Label]) -> Observation:
        """Learn a batch, once: images (B, 3, H, W) uint8 with one label each, of any level."""
        before = self._foresee(x, labels) if self.config.calibrate else None
        y = self.curator.observe(labels)
        self.novelty.update(before, y, self.taxonomy)
        batch = Batch(x, y)
        stats = self.learner.learn(batch, self.taxonomy)
        self.ledger.add(batch.keys, y)
        return Observation(stats, before)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.backbone.device

    def forget(self, x: Tensor, labels: Sequence[Label]) -> None:
        """Undo `observe` for samples, all or none: the same images with the same labels, or others of the same class.

        Methods that sum over samples subtract them, so the sums are those of a model that never saw them. What was
        fitted to them meanwhile stays, as do classes and links. A network that was trained on them is not unlearned:
        they leave the memory and are no longer replayed (`docs/corrections.md`). Samples that were never learned, were
        forgotten before, or are older than the newest 10,000 are an InputError.
        """
        tree = self.taxonomy
        nodes = torch.tensor([tree.id(label) if label in tree else UNKNOWN for label in labels], dtype=torch.long)
        found = self.ledger.find(content_keys(x), nodes, tree.resolve(self.ledger.nodes))
        places = [place for place in found if place is not None]
        if len(places) < len(labels):
            row = found.index(None)
            raise InputError(
                f"sample {row} was not learned as {labels[row].name}, was forgotten before, or is older than the "
                f"newest {REMEMBERED:,} samples"
            )
        self.learner.forget(Batch(x, self.ledger.nodes[places]), tree)
        self.ledger.remove(places)

    def relabel(self, x: Tensor, old: Sequence[Label], new: Sequence[Label]) -> Observation:
        """`forget` samples, then `observe` them with other labels."""
        self.forget(x, old)
        return self.observe(x, new)

    def beliefs(self, x: Tensor) -> Beliefs:
        """Calibrated predictions of images (B, 3, H, W) uint8, by level and over the known paths, and their novelty.

        Also of `frozen_features` of images.
        """
        if not len(self.taxonomy):
            raise InputError("nothing is learned yet: observe a batch first")
        return self.novelty(self._decode(self.learner.predict(x)), self.taxonomy)

    def probabilities(self, x: Tensor, decode: Decoding = "path") -> dict[int, Tensor]:
        """(B, classes) per level, with classes in the order of `taxonomy.nodes(level)`.

        "level" treats the levels as independent; "path" sums the known paths of the tree through each class.
        """
        check_choice("decode", decode, ("level", "path"))
        beliefs = self.beliefs(x)
        return beliefs.marginals() if decode == "path" else beliefs.levels

    def frozen_features(self, x: Tensor) -> Tensor | None:
        """(B, 3, H, W) uint8 -> (B, D) features that never change; None if the network is trained."""
        phi = self.learner.frozen_features(x)
        return None if phi is None else phi.cpu()

    def suggest(self, x: Tensor, count: int) -> list[Suggestion]:
        """Which of these images to label next, best first, and at which level (see `dhocl.model.suggest`).

        Args:
            x: images (n, 3, H, W) uint8, or their `frozen_features` (n, D).
            count: images to suggest, at most.

        A method that trains its network has no features that stay: similar images are those of similar predictions.
        """
        if not len(x):
            return []
        looks, features = [], []
        for part in torch.split(x, AT_ONCE):
            phi = self.frozen_features(part)
            beliefs = self.beliefs(part if phi is None else phi) if len(self.taxonomy) else None
            if phi is None:
                phi = torch.ones(len(part), 1) if beliefs is None else beliefs.posterior.sqrt()
            looks.append(Looks.at(beliefs, len(part), len(self.config.levels)))
            features.append(phi)
        learned = self.learner.learned()
        kept = None if learned is None else learned.cpu()
        return suggest(Looks.joined(looks), torch.cat(features), kept, count)

    def revise(self, revision: Revision) -> None:
        """Change the tree by hand. What the tree refuses is an InputError."""
        tree, (kind, label, other) = self.taxonomy, revision
        try:
            match kind, other:
                case "link", Label():
                    node = tree.id(label)
                    tree.link(node, tree.id(other))
                    self.curator.settle(node)
                case "unlink", None:
                    tree.unlink(tree.id(label))
                    self.curator.settle(tree.id(label))
                case "add", Label():
                    self._announce(label, other)
                case "rename", Label():
                    tree.rename(tree.id(label), other)
                case "merge", Label():
                    tree.merge(tree.id(label), tree.id(other))
                case _:
                    raise ValueError(f"no such revision: {revision}")
        except (KeyError, ValueError) as error:
            raise InputError(str(error.args[0])) from None

    def extend(self, tree: Taxonomy) -> list[Contradiction]:
        """Look up classes in this tree, too. Known classes without a parent get theirs at once.

        Returns the links of `tree` that contradict the model's, which are not used.
        """
        known = join(self.taxonomy, self.tree)[0] if self.tree else self.taxonomy
        contradictions = join(known, tree)[1]
        self.tree = join(self.tree or Taxonomy(), tree)[0]
        self.curator.asker.source = _joined(self.tree, self.source)
        for node in self.taxonomy.unanchored:
            self.apply(Oracle(self.tree).query(self.taxonomy.labels[node], self.taxonomy))
        return contradictions

    def apply(self, answer: Iterable[Statement]) -> None:
        """Apply what a knowledge source answered. A statement that contradicts the tree is refused and logged."""
        self.curator.apply(answer)

    def reader(self, lagging: bool = False) -> Model:
        """A copy for prediction, which stays as it is while this one learns on, in another thread if need be.

        Args:
            lagging: it may lack the last samples, where that saves work.
        """
        twin = copy.copy(self)
        twin.learner = self.learner.reader(lagging)
        twin.curator = Curator(Silent(), taxonomy=self.taxonomy.copy())
        twin.calibration = copy.deepcopy(self.calibration)
        twin.novelty = copy.deepcopy(self.novelty)
        twin._is_reader = True
        return twin

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, prediction is faster and nothing may be observed: the backbone's batch norms are folded."""
        with nullcontext() if self._is_reader else self.backbone.resting():  # the networks of a reader always rest
            yield

    def state_dict(self) -> dict[str, Any]:
        """The model format: nested dicts of tensors and JSON values."""
        return {
            "config": self.config.to_json(),
            "tree": self.tree.dumps() if self.tree else None,
            "sourced": self.source is not None,
            "curator": self.curator.state_dict(),
            "learner": self.learner.state_dict(),
            "calibration": self.calibration.state_dict(),
            "ledger": self.ledger.state_dict(),
            "novelty": self.novelty.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.curator.load_state_dict(state["curator"])
        self.learner.load_state_dict(state["learner"])
        self.calibration.load_state_dict(state["calibration"])
        self.ledger.load_state_dict(state.get("ledger", Ledger().state_dict()))  # earlier versions wrote none
        if "novelty" in state:  # an earlier version kept none: they gather anew
            self.novelty.load_state_dict(state["novelty"])

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        *,
        source: KnowledgeSource | None = None,
        backbone: nn.Module | None = None,
        device: str = "auto",
    ) -> Model:
        """A model from what `state_dict` returned, also on another device. A source or backbone of your own must be
        given again.
        """
        tree = Taxonomy.loads(state["tree"]) if state["tree"] is not None else None
        model = cls(ModelConfig.from_json(state["config"]), tree=tree, source=source, backbone=backbone, device=device)
        model.load_state_dict(state)
        return model

    def _foresee(self, x: Tensor, labels: Sequence[Label]) -> Beliefs | None:
        """Predict a batch before it is learned, and calibrate by the labels that are known."""
        tree = self.taxonomy
        if not len(tree):
            return None
        beliefs = self._decode(self.learner.foresee(x))
        known = [row for row, label in enumerate(labels) if label in tree]
        if known and not self.learner.coherent:
            nodes = torch.tensor([tree.id(labels[row]) for row in known])
            self.calibration.update(beliefs, known, nodes, tree)
        return beliefs

    def _decode(self, p: dict[int, Tensor]) -> Beliefs:
        """Beliefs from the probabilities of the learner, calibrated unless it does that itself."""
        merged = merge_synonyms({level: q.cpu() for level, q in p.items()}, self.taxonomy)
        if self.learner.coherent:
            return believe(merged, self.taxonomy, coherent=True)
        return self.calibration(merged, self.taxonomy)

    def _announce(self, label: Label, parent: Label) -> None:
        tree, above = self.taxonomy, self.taxonomy.id(parent)
        if label in tree:
            raise ValueError(f"{label} is there already: link it")
        if tree.labels[above].level >= label.level:
            raise ValueError(f"{label} can not lie below {parent}: a parent's level is smaller")
        node = tree.add(label)
        tree.link(node, above)
        self.curator.settle(node)


def _joined(tree: Taxonomy | None, source: KnowledgeSource | None) -> KnowledgeSource:
    """The tree is asked first. A slow source is asked from a thread."""
    known = [] if tree is None else [Oracle(tree)]
    asked = [] if source is None else [Background(source) if is_slow(source) else source]
    sources = [*known, *asked]
    return sources[0] if len(sources) == 1 else Chain(*sources) if sources else Silent()
