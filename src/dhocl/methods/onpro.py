"""OnPro, online prototypes (Wei et al. 2023): prototype contrast in a projection, mixup of confused classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.augment import random_grayscale, resized_crop, rotated
from dhocl.nn.heads.seeded import seeded
from dhocl.nn.learner import Batch, Needs, Setup, Stateful, TrainSettings
from dhocl.nn.network import Network

CLOSEST = 0.1  # lower limit of prototype distances, to bound 1 / distance


@dataclass(frozen=True)
class OnProSettings(TrainSettings):
    """Cost relative to plain replay: 3 times with `rotations=1`, 9 times with 4, 33 times in the original with 16.

    Use rotations only for images with a canonical orientation.
    """

    rotations: Literal[1, 4] = 1
    base_rate: float = 0.9  # share of the replay batch drawn without prototypes
    mixup: float = 0.2  # probability that an image of that share is mixed with another one
    most_mixed: float = 0.6  # largest weight of the second image
    instance_temperature: float = 0.07
    prototype_temperature: float = 0.5

    positive = frozenset({"instance_temperature", "prototype_temperature"})


def class_means(z: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The classes (K,) that occur in columns (n,), and the means (K, p) of their rows of z (n, p)."""
    rows = columns != UNKNOWN
    classes, place, counts = torch.unique(columns[rows], return_inverse=True, return_counts=True)
    return classes, z.new_zeros(len(classes), z.shape[1]).index_add(0, place, z[rows]) / counts[:, None]


def equilibrium(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """OPE: contrastive loss of the prototypes (K, p) of two views; the positive is the same class in the other view."""
    z = F.normalize(torch.cat([a, b]))  # (2K, p)
    similarity = (z @ z.t() / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(similarity, torch.arange(len(z), device=z.device).roll(len(a)))


def level_equilibrium(a: Tensor, b: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """The same for two views (n, p) with targets (n, levels): mean over the levels with two classes or more."""
    terms = []
    for columns in targets.t():
        classes, means = class_means(torch.cat([a, b], 1), columns)  # (K, 2p)
        if len(classes) > 1:
            first, second = means.chunk(2, 1)
            terms.append(equilibrium(first, second, temperature))
    return torch.stack(terms).mean() if terms else a.new_zeros(())


def instance_contrast(similarity: Tensor, labels: Tensor) -> Tensor:
    """Mean over rows of -mean over rows of the same label of log softmax over all other rows: (n, n), (n,)."""
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels[None, :]) & ~itself
    log_p = similarity.masked_fill(itself, -torch.inf).log_softmax(1).masked_fill(~positive, 0)
    return -(log_p.sum(1) / positive.sum(1).clamp_min(1)).mean()


def mixed_ce(logits: dict[int, Tensor], first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Σ_h mean of (1 - share) CE(z^h, first) + share CE(z^h, second): targets (n, levels) twice, share (n,).

    The mean is over the rows with a class at h; a missing class adds 0. With share 0 this is multi-CE.
    """
    total = share.new_zeros(())
    for place, z in enumerate(logits.values()):
        y = torch.cat([first[:, place], second[:, place]])  # (2n,)
        nll = F.nll_loss(F.log_softmax(z, 1).repeat(2, 1), y, ignore_index=UNKNOWN, reduction="none")
        labelled = (y != UNKNOWN).view(2, -1).any(0).sum().clamp_min(1)
        total = total + torch.cat([1 - share, share]) @ nll / labelled
    return total


class Prototypes:
    """The projection to unit vectors (of 128 dimensions, or fewer if there are fewer features), and its prototypes.

    Prototypes are the class means of the last replay batch, in main memory. Classes that are not in it have none.
    """

    def __init__(self, net: Network, lr: float, seed: int) -> None:
        self.width = min(128, net.f.dim)
        self._linear = seeded(nn.Linear(net.f.dim, self.width), Rng(seed, "projection")).to(net.device)
        net.optimizer.add(((f"projection.{name}", p) for name, p in self._linear.named_parameters()), lr)
        self._last: dict[int, tuple[Tensor, Tensor]] = {}  # level -> classes (K,), means (K, p)

    def __call__(self, features: Tensor) -> Tensor:
        return F.normalize(self._linear(features))

    def observe(self, z: Tensor, targets: Tensor, taxonomy: Taxonomy) -> None:
        self._last = {level: class_means(z, targets[:, place]) for place, level in enumerate(taxonomy.levels)}

    def pairs(self, stored: Tensor, taxonomy: Taxonomy) -> tuple[Tensor, Tensor]:
        """Adaptive prototypical feedback: pairs (P, 3) of a place and two columns that are in `stored` (M, levels), and
        their probabilities (P,) of being mixed: softmax(1 / distance) over the pairs of all levels."""
        found, distances = [torch.empty(0, 3, dtype=torch.long)], [torch.empty(0)]
        for level, (classes, means) in self._last.items():
            place = taxonomy.levels.index(level)
            there = torch.isin(classes, stored[:, place]).nonzero()[:, 0]
            i, j = there[torch.triu_indices(len(there), len(there), 1)]
            found.append(torch.stack([torch.full_like(i, place), classes[i], classes[j]], 1))
            distances.append((means[i] - means[j]).norm(dim=1))
        return torch.cat(found), (1 / torch.cat(distances).double().clamp_min(CLOSEST)).softmax(0)

    def state_dict(self) -> dict[str, Any]:
        last = {str(level): {"classes": classes, "means": means} for level, (classes, means) in self._last.items()}
        return {"linear": dict(self._linear.state_dict()), "last": last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._linear.load_state_dict(state["linear"])
        last = state.get("last", {})
        self._last = {int(level): (seen["classes"].clone(), seen["means"].clone()) for level, seen in last.items()}


class OnPro(ER):
    """Contrasts the original image with a strong view; the cross-entropy uses another strong view.

    Deviations: the original trains its classifier on the stream in the first task, and only on replayed images later.
    Here there are no tasks, so every step uses both. The original also contrasts mixed images, labelled by the average
    of two class numbers. Here replayed images are contrasted unmixed, in the pass that computes their prototypes.
    """

    settings: OnProSettings  # type: ignore[assignment]  # no `loss`: it has its own cross-entropy

    def __init__(self, setup: Setup, settings: OnProSettings) -> None:
        rates = settings.lr_backbone, settings.lr_heads, settings.weight_decay
        super().__init__(setup, ReplaySettings(*rates, loss="multi_ce"))
        self.settings = settings
        self.prototypes = Prototypes(self.net, settings.lr_heads, setup.seed)

    def needs(self, batch: int, samples: int) -> Needs:
        plain = super().needs(batch, samples)
        return plain._replace(trained=(2 * self.settings.rotations + 1) * plain.trained)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        batches, mixes = [batch], [(batch, batch, torch.zeros(len(batch.y)))]
        if len(slots := self.memory.draw(self.setup.replay_batch)):
            batches.append(self.items(slots))
            mixes.append(self.mix(slots, taxonomy))
        device = self.net.device
        turns = [rotated(b.x.to(device), self.settings.rotations) for b in batches]
        pairs = [torch.cat([x, self.strong(x)]) for x in turns]  # (2 rotations n, 3, H, W) each
        blends = [
            torch.lerp(a.x.to(device).float(), b.x.to(device).float(), share.to(device)[:, None, None, None])
            for a, b, share in mixes
        ]
        outputs = self.net.each([*pairs, *map(self.strong, blends)])

        terms = []  # (3,) for each batch
        for own, (a, b, share), pair, blend in zip(batches, mixes, outputs, outputs[len(pairs) :], strict=False):
            targets = self.net.targets(own.y, taxonomy)  # (n, levels)
            z = self.prototypes(pair.features)  # (2 rotations n, p)
            upright = z.view(2, -1, self.prototypes.width)[:, : len(own.y)]  # (2, n, p)
            first, second = (self.net.targets(side.y, taxonomy) for side in (a, b))
            ce = mixed_ce(blend.logits, first, second, share.to(device))
            ope = level_equilibrium(upright[0], upright[1], targets, self.settings.prototype_temperature)
            terms.append(torch.stack([ce, self.instance(pair.features, z, own.y), ope]))
        loss = torch.stack(terms).sum(0)
        self.net.step(loss.sum())
        if len(batches) > 1:
            self.prototypes.observe(upright.detach().mean(0).cpu(), targets.cpu(), taxonomy)  # of the replay batch
        self.memory.insert(x=batch.x, y=batch.y)
        return dict(zip(("loss.ce", "loss.instance", "loss.prototypes"), loss.tolist(), strict=True))

    def instance(self, features: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Contrast of projections with projections plus a random slice of the features, by node and rotation:
        features (2 rotations n, d), z (2 rotations n, p), y (n,). Each half is a view, rotation after rotation."""
        start = self.rng.integers(features.shape[1] - self.prototypes.width + 1)
        part = F.normalize(features)[:, start : start + self.prototypes.width]
        turns = (y.max() + 1) * torch.arange(self.settings.rotations)
        labels = (y + turns[:, None]).flatten().repeat(2).to(z.device)
        return instance_contrast(z @ (z + part).t() / self.settings.instance_temperature, labels)

    def mix(self, slots: np.ndarray, taxonomy: Taxonomy) -> tuple[Batch, Batch, Tensor]:
        """First items, second items and weights of the second, for mixup. A share `base_rate` are replayed items, mixed
        with another one or with themselves. The rest are stored items of class pairs drawn by `Prototypes.pairs`."""
        stored = taxonomy.complete(self.memory.columns["y"][: self.memory.size])  # (M, levels)
        pairs, chances = self.prototypes.pairs(stored, taxonomy)
        base = int(self.settings.base_rate * len(slots)) if len(pairs) else len(slots)
        plain = self.rng.permutation(slots)[:base]
        mixed = self.rng.random(base) < self.settings.mixup
        sides = [list(plain), list(np.where(mixed, self.rng.permutation(plain), plain))]
        for _ in range(len(slots) - base):
            place, *classes = pairs[self.rng.choice(len(pairs), p=chances.numpy())].tolist()
            for side, column in zip(sides, classes, strict=True):
                side.append(self.rng.choice(np.flatnonzero(stored[:, place] == column)))
        first, second = (self.items(np.array(side)) for side in sides)
        return first, second, torch.from_numpy(self.rng.uniform(0, self.settings.most_mixed, len(slots))).float()

    def items(self, slots: np.ndarray) -> Batch:
        found = self.memory.read(slots)
        return Batch(found["x"], found["y"])

    def strong(self, x: Tensor) -> Tensor:
        return resized_crop(random_grayscale(x, self.rng, 0.25), self.rng, self.setup.flip, (0.3, 1.0))

    def components(self) -> dict[str, Stateful]:
        return {"prototypes": self.prototypes, **super().components()}
