"""Speed of a device: forward passes, steps of three methods, and predictions, on random images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.core.precision import Precision
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.model import Model, ModelConfig

LEVELS = ("family", "genus", "species")
CHILDREN = (10, 4, 5)  # classes of a level, and children of each class of the levels above: 200 species
METHODS = ("amber", "halo", "er")
FEWEST = 3  # times that each part is timed


class Workload(NamedTuple):
    """What is measured."""

    device: str = "auto"
    backbone: str = "efficientnet_lite0"
    image_size: int = 96
    batch: int = 32
    precision: Precision = "float32"
    seconds: float = 3.0  # of each part, at least


class Measured(NamedTuple):
    """The speed of one part."""

    what: str
    milliseconds: float  # median of a batch
    images_per_second: float
    peak_bytes: int | None  # memory of the GPU; None on a CPU


def full_tree() -> Taxonomy:
    """LEVELS of classes, CHILDREN of each."""
    tree = Taxonomy()
    above = [tree.add(Label(f"{LEVELS[0]} {number}", 0)) for number in range(CHILDREN[0])]
    for level, count in enumerate(CHILDREN[1:], 1):
        below: list[int] = []
        for parent in above:
            for _ in range(count):
                node = tree.add(Label(f"{LEVELS[level]} {len(below)}", level))
                tree.link(node, parent)
                below.append(node)
        above = below
    return tree


def measure(work: Workload) -> Iterator[Measured]:
    """Measure each part in turn. InputError if there is no such device, at once."""
    model = _model(work, "amber")
    return _measure(work, model)


def _measure(work: Workload, model: Model) -> Iterator[Measured]:
    images, device, rng = _Images(work), model.device, Rng(0, "bench")
    with torch.no_grad(), model.resting():
        yield _timed("forward", lambda: model.backbone.features(images()), work, device)
    for method in METHODS:
        learning = model if method == "amber" else _model(work, method)
        labels = list(learning.tree) if learning.tree else []

        def learn(learning: Model = learning, labels: list[Label] = labels) -> None:
            learning.observe(images(), [labels[row] for row in rng.integers(len(labels), size=work.batch)])

        for start in range(0, len(labels), work.batch):  # all classes are known before time counts
            some = labels[start : start + work.batch]
            learning.observe(images()[: len(some)], some)
        yield _timed(f"{method}, learn", learn, work, device)
        reader = learning.reader()
        yield _timed(f"{method}, predict", lambda reader=reader: reader.beliefs(images()), work, device)  # type: ignore[misc]


def _model(work: Workload, method: str) -> Model:
    config = ModelConfig(
        LEVELS,
        method,
        backbone=work.backbone,
        image_size=work.image_size,
        replay_batch=work.batch // 2,
        calibrate=False,
        precision=work.precision,
    )
    return Model(config, tree=full_tree(), device=work.device)


class _Images:
    """New random images at each call: those that were seen before have their features in a cache."""

    def __init__(self, work: Workload) -> None:
        self._rng = torch.Generator().manual_seed(0)
        self._shape = work.batch, 3, work.image_size, work.image_size

    def __call__(self) -> Tensor:
        return torch.randint(256, self._shape, dtype=torch.uint8, generator=self._rng)


def _timed(what: str, part: Callable[[], object], work: Workload, device: torch.device) -> Measured:
    on_gpu = device.type == "cuda"
    part()  # kernels are chosen and memory is allocated the first time
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < work.seconds:
        began = time.perf_counter()
        part()
        if on_gpu:
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    typical = median(times)
    peak = int(torch.cuda.max_memory_allocated(device)) if on_gpu else None
    return Measured(what, 1000 * typical, work.batch / typical, peak)
