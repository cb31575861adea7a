"""iCaRL (Rebuffi et al. 2017) with semantic drift compensation (Yu et al. 2020): nearest class means.

The heads only train the features, with a binary loss that distils a snapshot of the network. Predictions use the mean
feature of each node: by default a running mean over all labelled samples. A buffer of 200 images holds two of each of
100 classes, too few for a mean. At each snapshot, drift compensation shifts the part of a mean that is older than the
last one. `means="exemplars"` is iCaRL's form: means of nodes in the current data are recomputed, the others shifted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.core.devices import Device
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.nn.augment import augment
from dhocl.nn.learner import Batch, Learner, Needs, PeriodicSettings, Setup, Stateful, TrainSettings
from dhocl.nn.memory import Reservoir
from dhocl.nn.network import Network, Output
from dhocl.nn.snapshot import Snapshot


@dataclass(frozen=True)
class IcarlSettings(TrainSettings, PeriodicSettings):
    lr_backbone: float = 1e-5
    lr_heads: float = 1e-3
    means: Literal["running", "exemplars"] = "running"  # over all labelled samples, or over the stored images
    sigma: float = 0.2  # kernel width of the drift compensation, for unit features
    own_label: bool = True  # the target of a row's own class is 1 even if the class is old; false: as in iCaRL
    ncm_tau: float = 0.05  # softmax temperature of squared distances in [0, 4]

    positive = frozenset({"sigma", "ncm_tau"})


def binary_loss(logits: dict[int, Tensor], old: dict[int, Tensor], targets: Tensor, own_label: bool) -> Tensor:
    """Σ_h mean over the rows labelled at h of Σ_c BCE(σ(z_c), t_c): t is one-hot, for old classes σ(z_old).

    Logits (B, classes) per level, `old` for the classes of the snapshot; targets (B, levels). In iCaRL old classes do
    not recur. In a stream most labels are of classes older than the snapshot; `own_label` makes them count.
    """
    terms = []
    for place, (level, z) in enumerate(logits.items()):
        rows = targets[:, place] != UNKNOWN
        wanted = F.one_hot(targets[rows, place], z.shape[1]).to(z.dtype)
        if level in old:
            teacher = old[level][rows].sigmoid()
            known = wanted[:, : teacher.shape[1]]
            known.copy_(teacher.maximum(known) if own_label else teacher)
        loss = F.binary_cross_entropy_with_logits(z[rows], wanted, reduction="sum")
        terms.append(loss / rows.sum().clamp_min(1))
    return torch.stack(terms).sum()


def node_means(features: Tensor, columns: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Mean (0 if empty) and number of the rows of each class: (n, d), (n,) with -1 for none -> (C, d), (C,)."""
    rows = columns != UNKNOWN
    counts = torch.bincount(columns[rows], minlength=width).to(features.dtype)
    sums = features.new_zeros(width, features.shape[1]).index_add_(0, columns[rows], features[rows])
    return sums / counts.clamp_min(1)[:, None], counts


def drift(means: Tensor, before: Tensor, after: Tensor, sigma: float) -> Tensor:
    """Δ_c = Σ_i w_i (z_i^new - z_i^old) / Σ_i w_i, w_i = exp(-‖z_i^old - μ_c‖² / 2σ²): (C, d), (n, d) twice -> (C, d).

    Weights are normalised in log space to avoid underflow. A mean without features near it is not shifted.
    """
    if not len(before):
        return torch.zeros_like(means)
    near = -torch.cdist(means, before).square() / (2 * sigma**2)  # (C, n)
    return near.softmax(1) @ (after - before) * (near.amax(1) > -50)[:, None]


def nearest_mean(unit: Tensor, means: Tensor, known: Tensor, tau: float) -> Tensor:
    """softmax(-‖u - μ‖² / τ) of unit vectors: (B, d), (C, d), (C,) -> (B, C).

    A class without a mean gets the maximal distance 4. If no class has a mean, the result is uniform.
    """
    distances = 2 - 2 * unit @ F.normalize(means).t()
    return (-distances.masked_fill(~known, 4.0) / tau).softmax(1)


@torch.no_grad()
def unit_features(model: Callable[[Tensor], Output], x: Tensor) -> Tensor:
    """(n, 3, H, W) -> (n, d), in batches, without augmentation."""
    return torch.cat([F.normalize(model(part).features) for part in torch.split(x, 128)])


class Means:
    """Mean unit feature of every node, by level.

    `counts` is the number of samples in a mean: 0 without any, inf for a mean of exemplars. `settled` is `counts` at
    the last snapshot of the network.
    """

    def __init__(self, dim: int, device: Device = "cpu") -> None:
        self._dim = dim
        self._device = device
        self.rows: dict[int, Tensor] = {}  # level -> (C, d)
        self.counts: dict[int, Tensor] = {}  # level -> (C,)
        self.settled: dict[int, Tensor] = {}  # level -> (C,)
        self.met: set[int] = set()  # labels since the last snapshot

    def grow(self, taxonomy: Taxonomy) -> None:
        for level, width in taxonomy.widths.items():
            rows = self.rows.get(level, torch.zeros(0, self._dim, device=self._device))
            if (missing := width - len(rows)) > 0:
                self.rows[level] = F.pad(rows, (0, 0, 0, missing))
                for numbers in (self.counts, self.settled):
                    numbers[level] = F.pad(numbers.get(level, rows.new_zeros(0)), (0, missing))

    def observe(self, unit: Tensor, targets: Tensor) -> None:
        """Add samples of the stream, (b, d) and (b, levels). Means of exemplars do not change."""
        for place, level in enumerate(sorted(self.rows)):
            rows, counts = self.rows[level], self.counts[level]
            fresh, came = node_means(unit, targets[:, place], len(rows))
            share = came / (counts + came).clamp_min(1)  # 0 where counts is inf
            rows += share[:, None] * (fresh - rows)
            counts += came

    def shift(self, before: Tensor, after: Tensor, sigma: float) -> None:
        """Compensate the drift of features (n, d) since the last snapshot, for the share of samples from before it."""
        for level, rows in self.rows.items():
            older = (self.settled[level] / self.counts[level].clamp_min(1)).nan_to_num(1.0)  # inf / inf: the whole mean
            rows += older[:, None] * drift(rows, before, after, sigma)

    def renew(self, current: Tensor, unit: Tensor, targets: Tensor) -> None:
        """Recompute means of nodes on the paths `current` (m, levels) from exemplars (n, d), (n, levels)."""
        for place, level in enumerate(sorted(self.rows)):
            rows = self.rows[level]
            fresh, came = node_means(unit, targets[:, place], len(rows))
            anew = torch.isin(torch.arange(len(rows), device=rows.device), current[:, place]) & (came > 0)
            rows[anew] = fresh[anew]
            self.counts[level][anew] = torch.inf

    def settle(self) -> None:
        """Call when a snapshot is taken."""
        self.settled = {level: counts.clone() for level, counts in self.counts.items()}
        self.met = set()

    def probabilities(self, unit: Tensor, tau: float) -> dict[int, Tensor]:
        return {level: nearest_mean(unit, self.rows[level], self.counts[level] > 0, tau) for level in sorted(self.rows)}

    def state_dict(self) -> dict[str, Any]:
        levels = {
            str(level): {"rows": rows, "counts": self.counts[level], "settled": self.settled[level]}
            for level, rows in self.rows.items()
        }
        return {"levels": levels, "met": sorted(self.met)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.counts, self.settled = (
            {int(level): tensors[name].to(self._device, copy=True) for level, tensors in state["levels"].items()}
            for name in ("rows", "counts", "settled")
        )
        self.met = set(state["met"])


class ICaRL(Learner):
    """Not an ER: it has a loss of its own, and its heads do not predict."""

    def __init__(self, setup: Setup, settings: IcarlSettings) -> None:
        self.setup = setup
        self.settings = settings
        self.rng = Rng(setup.seed, "learner")
        self.net = Network(setup, settings)
        self.memory = Reservoir(setup.buffer, self.rng)
        self.old = Snapshot(self.net)
        self.means = Means(self.net.f.dim, self.net.device)

    def needs(self, batch: int, samples: int) -> Needs:
        return self.setup.replay_needs(batch, samples)

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.net.grow(taxonomy)
        self.means.grow(taxonomy)
        self.memory.follow(taxonomy)
        items = self.memory.sample(self.setup.replay_batch)
        batches = [batch, Batch(items["x"], items["y"])] if items else [batch]
        views = [augment(each.x.to(self.net.device), self.rng, self.setup.flip) for each in batches]
        outputs = self.net.each(views)
        loss = torch.zeros(())
        for x, output, each in zip(views, outputs, batches, strict=True):
            old = self.old(x).logits if self.old.taken else {}
            loss = loss + binary_loss(output.logits, old, self.net.targets(each.y, taxonomy), self.settings.own_label)
        self.net.step(loss)
        self.means.observe(F.normalize(outputs[0].features.detach()), self.net.targets(batch.y, taxonomy))
        self.means.met.update(batch.y.tolist())
        self.memory.insert(x=batch.x, y=batch.y)
        if self.settings.due(self.setup, self.memory.seen, len(batch.y)):
            self.follow(taxonomy)  # needs the previous snapshot
            self.old.take()
        return {"loss": loss.item()}

    def follow(self, taxonomy: Taxonomy) -> None:
        """Update the means to the current network, using exemplars of the labels seen since the last snapshot."""
        met = taxonomy.resolve(torch.tensor(sorted(self.means.met)))
        items = self.memory.read(np.arange(self.memory.size))
        own = items["x"][torch.isin(items["y"], met)]
        if self.old.taken and len(own):
            self.means.shift(unit_features(self.old, own), unit_features(self.net, own), self.settings.sigma)
        if self.settings.means == "exemplars":
            paths, current = taxonomy.complete(items["y"]), taxonomy.complete(met)
            below = ((paths[:, None] == current) & (current != UNKNOWN)).any(2).any(1)  # a node in the current data
            if below.any():
                exemplars = unit_features(self.net, items["x"][below])
                self.means.renew(current.to(self.net.device), exemplars, paths[below].to(self.net.device))
        self.means.settle()

    @torch.no_grad()
    def predict(self, x: Tensor) -> dict[int, Tensor]:
        return self.means.probabilities(F.normalize(self.net(x).features), self.settings.ncm_tau)

    def held(self) -> Tensor:
        return self.memory.nodes

    def components(self) -> dict[str, Stateful]:
        return {
            "rng": self.rng,
            "net": self.net,
            "memory": self.memory,
            "old": self.old,
            "means": self.means,
            "optimizer": self.net.optimizer,  # last: it needs the parameters that the others create
        }
