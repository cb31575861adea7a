"""NsCE (Wang et al. 2024): non-sparse classifier, maximally separated prototypes, rare rounds of replay.

Steps between rounds train on the stream batch only. A round trains on the whole memory, then on pairs of confused
classes, then on the whole memory again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.cbrs import ClassBalanced
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.icarl_sdc import node_means
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, PeriodicSettings, Setup, Stateful
from dhocl.nn.memory import Memory


@dataclass(frozen=True)
class NsceSettings(ReplaySettings, PeriodicSettings):
    """A round of replay runs every `every` samples, by default ten times per stream.

    NsCE runs one every 10, 50 or 100 batches of 10. Every 50 batches, with a memory of 1,000, it replays 4 to 6 images
    per stream image: the same cost as `every` = half the buffer.
    """

    spread: float = 0.01
    separation: float = 0.1  # weight of a mean over rows; NsCE: 0.01 of a sum over batches of 10
    momentum: float = 0.95  # of the prototypes, per image
    threshold: float = 0.2  # two classes are a pair if more than this share of one is predicted as the other


def l1_over_l2(W: Tensor) -> Tensor:
    """‖W‖₁ / ‖W‖₂, from 1 for a single weight to √n for n equal ones; independent of the scale of W."""
    return W.abs().sum() / W.square().sum().sqrt()


def separation(features: Tensor, prototypes: Tensor, columns: Tensor) -> Tensor:
    """Mean over rows of ‖cos(f, P) - t‖₂, t = 1 at the row's own prototype and -1/(K-1) at the others (a simplex).

    (b, d), (K, d), (b,) -> (). Each row is compared with its own target. NsCE's code sums over all pairs of rows, which
    also pulls an image towards the targets of other rows.
    """
    k = len(prototypes)
    wanted = torch.where(F.one_hot(columns, k).bool(), 1.0, -1 / max(1, k - 1))  # (b, K)
    cosines = F.normalize(features) @ F.normalize(prototypes).t()
    return F.pairwise_distance(cosines, wanted, eps=0).mean()


def confused_pairs(predicted: Tensor, targets: Tensor, threshold: float) -> list[tuple[int, tuple[int, int]]]:
    """(place of the level, two classes) where more than `threshold` of one is predicted as the other, worst first.

    (n, levels) twice. Shares are off-diagonal entries of a level's row-normalised confusion matrix.
    """
    found: dict[tuple[int, tuple[int, int]], float] = {}
    for place in range(targets.shape[1]):
        rows = targets[:, place] != UNKNOWN
        true = targets[rows, place].tolist()
        items = Counter(true)
        for (own, taken), count in Counter(zip(true, predicted[rows, place].tolist(), strict=True)).items():
            pair, share = (place, (min(own, taken), max(own, taken))), count / items[own]
            if own != taken and share > threshold:
                found[pair] = max(share, found.get(pair, 0.0))
    return sorted(found, key=lambda pair: (-found[pair], pair))


class NodePrototypes:
    """Running mean feature of every node, by level, and the number of old classes of each level."""

    def __init__(self, dim: int, momentum: float, device: Device = "cpu") -> None:
        self._dim = dim
        self._device = device
        self._momentum = momentum
        self.rows: dict[int, Tensor] = {}  # level -> (C, d)
        self.images: dict[int, Tensor] = {}  # level -> (C,) number of images in each
        self.old: dict[int, int] = {}  # level -> classes known before the level last grew

    def grow(self, taxonomy: Taxonomy) -> None:
        for level, width in taxonomy.widths.items():
            rows = self.rows.get(level, torch.zeros(0, self._dim, device=self._device))
            if (missing := width - len(rows)) > 0:
                self.old[level] = len(rows)
                self.rows[level] = F.pad(rows, (0, 0, 0, missing))
                self.images[level] = F.pad(self.images.get(level, rows.new_zeros(0)), (0, missing))
            if taxonomy.merges:
                self._merge(self.rows[level], self.images[level], taxonomy.ancestors(level, level).to(self._device))

    @staticmethod
    def _merge(rows: Tensor, images: Tensor, accepted: Tensor) -> None:
        """Merge prototypes of merged classes into those of their accepted classes: (C, d), (C,), (C,)."""
        merged = (accepted != torch.arange(len(accepted), device=accepted.device)) & (images > 0)
        for column in merged.nonzero()[:, 0].tolist():
            into = int(accepted[column])
            images[into] += images[column]
            rows[into].lerp_(rows[column], float(images[column] / images[into]))
            images[column] = 0

    def observe(self, features: Tensor, targets: Tensor) -> None:
        """Move each prototype towards its batch mean, with the momentum applied once per image: (b, d), (b, levels)."""
        for place, level in enumerate(sorted(self.rows)):
            rows, images = self.rows[level], self.images[level]
            fresh, came = node_means(features, targets[:, place], len(rows))
            share = torch.where(images > 0, 1 - self._momentum**came, (came > 0).float())
            rows += share[:, None] * (fresh - rows)
            images += came

    def separation(self, features: Tensor, targets: Tensor) -> Tensor:
        """Σ_h of `separation` over rows labelled at h and nodes with a prototype; levels with one such node add 0."""
        total = features.new_zeros(())
        for place, level in enumerate(sorted(self.rows)):
            rows, met = targets[:, place] != UNKNOWN, self.images[level] > 0
            if rows.any() and met.sum() > 1:
                places = met.cumsum(0) - 1  # class -> index among classes with a prototype
                total = total + separation(features[rows], self.rows[level][met], places[targets[rows, place]])
        return total

    def state_dict(self) -> dict[str, Any]:
        return {
            str(level): {"rows": rows, "images": self.images[level], "old": self.old[level]}
            for level, rows in self.rows.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = {int(level): entry["rows"].to(self._device, copy=True) for level, entry in state.items()}
        self.images = {int(level): entry["images"].to(self._device, copy=True) for level, entry in state.items()}
        self.old = {int(level): entry["old"] for level, entry in state.items()}


class NsCE(ER):
    settings: NsceSettings

    def __init__(self, setup: Setup, settings: NsceSettings) -> None:
        super().__init__(setup, settings)
        self.prototypes = NodePrototypes(self.net.f.dim, settings.momentum, self.net.device)

    def make_memory(self) -> Memory:
        return ClassBalanced(self.setup.buffer, self.rng)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        stats = super().learn(batch, taxonomy)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.rehearse(len(batch.y) + self.setup.replay_batch, taxonomy)
        return stats

    def follow(self, taxonomy: Taxonomy) -> None:
        super().follow(taxonomy)
        self.prototypes.grow(taxonomy)

    def replay(self, batch: Batch, taxonomy: Taxonomy) -> list[Batch]:
        return []

    def loss(self, batches: Sequence[Batch], taxonomy: Taxonomy) -> Tensor:
        """Loss of the stream batch: the loss of the settings, the sparsity penalty and the separation."""
        batches = self.augmented(batches)
        (output,) = self.outputs(batches)
        targets = self.net.targets(batches[0].y, taxonomy)
        self.prototypes.observe(output.features.detach(), targets)
        return (
            self.objectives([output], batches, taxonomy)
            + self.settings.spread * self.concentration()
            + self.settings.separation * self.prototypes.separation(output.features, targets)
        )

    def concentration(self) -> Tensor:
        """Σ_h -‖W‖₁ / ‖W‖₂ / d of the old classes. Without any: + of the whole head, as in NsCE."""
        terms = []
        for level, (W, _) in self.net.heads.levels.items():
            old = self.prototypes.old[level]
            terms.append((-l1_over_l2(W[:old]) if old else l1_over_l2(W)) / W.shape[1])
        return torch.stack(terms).sum()

    def rehearse(self, b: int, taxonomy: Taxonomy) -> None:
        """A round of replay, in batches of b.

        All pairs together have at most as many items as the memory, so a round costs at most three passes.
        """
        predicted = self.go_over(b, taxonomy)
        targets = taxonomy.complete(self.memory.read(np.arange(self.memory.size))["y"])
        room = self.memory.size
        for place, pair in confused_pairs(predicted, targets, self.settings.threshold):
            slots = torch.isin(targets[:, place], torch.tensor(pair)).nonzero()[:, 0].numpy()
            if len(slots) <= room:
                room -= len(slots)
                self.tell_apart(taxonomy.levels[place], pair, slots, targets[:, place], b)
        self.go_over(b, taxonomy)

    def go_over(self, b: int, taxonomy: Taxonomy) -> Tensor:
        """One pass over the memory. Returns the class predicted for each item before its step, (size, levels)."""
        predicted = torch.zeros(self.memory.size, len(taxonomy.levels), dtype=torch.long)
        for slots, batch in self.shuffled(np.arange(self.memory.size), b):
            augmented = self.augmented([batch])
            outputs = self.outputs(augmented)
            self.net.step(self.objectives(outputs, augmented, taxonomy))
            answers = self.objective.probabilities(outputs[0].rows(0, len(slots)).logits)
            predicted[torch.from_numpy(slots)] = torch.stack([p.argmax(1) for p in answers.values()], 1).cpu()
        return predicted

    def tell_apart(self, level: int, pair: tuple[int, int], slots: np.ndarray, columns: Tensor, b: int) -> None:
        """One pass over the items of two classes, with a softmax over these two; columns (size,) are the true classes.

        NsCE's code keeps the softmax over all classes and masks the loss, which equals the plain loss.
        """
        for part, batch in self.shuffled(slots, b):
            x = batch.x.to(self.net.device)
            z = self.net(augment(x, self.rng, self.setup.flip)).logits[level][:, pair]
            second = columns[torch.from_numpy(part)] == pair[1]
            self.net.step(F.cross_entropy(z, second.long().to(z.device)))

    def shuffled(self, slots: np.ndarray, b: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """The items of these slots in random order, in batches of b."""
        order = self.rng.permutation(slots)
        for start in range(0, len(order), b):
            part = order[start : start + b]
            items = self.memory.read(part)
            yield part, Batch(items["x"], items["y"])

    def components(self) -> dict[str, Stateful]:
        return {"prototypes": self.prototypes, **super().components()}
