"""HALO's step compared with the work that it can not avoid, and a breakdown of its time."""

from __future__ import annotations

import copy
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from timing import Row, afresh, ratio
from torch import Tensor, nn
from torch.autograd.profiler_util import FunctionEvent
from torch.nn.functional import conv2d, pad, relu6
from torch.profiler import ProfilerActivity, profile, record_function
from worlds import BATCH, REPLAY, World, full_tree, make_learner

from dhocl.data.files import read_ahead
from dhocl.knowledge import Curator, Oracle
from dhocl.methods import halo
from dhocl.nn import backbones
from dhocl.nn.backbones import Backbone, frozen
from dhocl.nn.backbones.layers import ConvNorm
from dhocl.nn.features import FrozenFeatures
from dhocl.nn.heads.analytic import AnalyticHeads
from dhocl.nn.heads.linear import LinearHeads
from dhocl.nn.heads.predla import PredLA
from dhocl.nn.heads.prototypes import Prototypes
from dhocl.nn.learner import Batch
from dhocl.nn.memory import Memory
from dhocl.nn.optim import Optimizer

SIZE = 64


class Unavoidable:
    """f forward and backward on stream and replay, f0 forward on the stream, one fused AdamW step of f."""

    def __init__(self, backbone: Backbone, world: World) -> None:
        self.f, self.f0 = copy.deepcopy(backbone), frozen(backbone)
        self.adam = torch.optim.AdamW(self.f.parameters(), lr=1e-4, fused=True)
        self.both = world.images(BATCH + REPLAY)

    def step(self) -> None:
        with torch.no_grad():
            self.f0(self.both[:BATCH])
        features, feature_map = self.f(self.both)
        self.adam.zero_grad()
        (features.square().mean() + feature_map.square().mean()).backward()  # type: ignore[no-untyped-call]
        self.adam.step()


class Plain(nn.Module):
    """A layer of the backbone in plain PyTorch: padding, convolution, normalisation, ReLU6."""

    def __init__(self, layer: ConvNorm) -> None:
        super().__init__()
        self.conv, self.norm, self.relu6 = layer.conv, layer.norm, layer.relu6

    def forward(self, x: Tensor) -> Tensor:
        k, s, groups = self.conv.kernel_size[0], self.conv.stride[0], self.conv.groups
        if s == 1:
            y = conv2d(x, self.conv.weight, padding=k // 2, groups=groups)
        else:  # TensorFlow's padding of an even size
            y = conv2d(pad(x, (k // 2 - 1, k // 2) * 2), self.conv.weight, stride=s, groups=groups)
        y = self.norm(y)
        return relu6(y, inplace=True) if self.relu6 else y


def in_plain_layers(backbone: Backbone) -> Backbone:
    """A copy without the optimisations of `backbones.layers`."""
    twin = copy.deepcopy(backbone)
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if isinstance(child, ConvNorm):
                setattr(parent, name, Plain(child))
    return twin


class Step:
    """HALO with all classes known and a full memory."""

    def __init__(self, world: World, backbone: Backbone) -> None:
        rows = [torch.arange(place * BATCH, (place + 1) * BATCH) for place in range(8)]
        self._ahead = read_ahead(world.images(8 * BATCH), cycle(rows))
        self._named = cycle([world.names(world.labels(BATCH)) for _ in rows])
        self._curator = Curator(Oracle(world.tree), delay=0)
        self._curator.observe(list(world.tree))
        self.learner = make_learner("halo", copy.deepcopy(backbone))
        for _ in range(22):  # until prototypes have been kept, too
            self.step()

    def step(self) -> None:
        x, y = self.load(), self._curator.observe(next(self._named))
        self.learner.learn(Batch(x, y), self._curator.taxonomy)

    def load(self) -> Tensor:
        return next(self._ahead)


class Measured(NamedTuple):
    took: float  # milliseconds
    times: float  # of the unavoidable
    times_plain: float  # of the unavoidable with a backbone in plain layers


def measure(classes: int, levels: int, instances: int) -> Measured:
    backbone = backbones.load("efficientnet_lite0")
    plain = in_plain_layers(backbone)
    world = World(full_tree(classes, levels), SIZE)

    def sides() -> dict[str, Callable[[], None]]:
        return {
            "ours": Step(world, backbone).step,
            "bare": Unavoidable(backbone, world).step,
            "plain": Unavoidable(plain, world).step,
        }

    spent = afresh(sides, instances, turns=5)
    ours = spent["ours"]
    return Measured(statistics.median(ours), ratio(ours, spent["bare"]), ratio(ours, spent["plain"]))


def rows(quick: bool) -> list[Row]:
    told = []
    for classes, levels, name in ((100, 3, "halo_step_ratio"), (1000, 7, "halo_step_ratio_1000x7")):
        took, times, times_plain = measure(classes, levels, 1 if quick else 7)
        told.append(
            Row(
                f"HALO's step at {SIZE} px, {classes:,} classes, {levels} levels",
                f"{times:.2f} x the unavoidable, {times_plain:.2f} x that in plain layers of PyTorch, {took:.0f} ms",
                {name: times, f"{name}_plain": times_plain, f"{name}_ms": took},
            )
        )
    return told


# -- where the time goes ----------------------------------------------------------------------------------------

PIECE = "piece:"
BACKWARD = "autograd::engine::evaluate_function"
PIECES: list[tuple[Any, str, str]] = [
    (Backbone, "forward", "f"),
    (FrozenFeatures, "__call__", "f0"),
    (AnalyticHeads, "learn", "RLS"),
    (AnalyticHeads, "__call__", "analytic outputs"),
    (LinearHeads, "__call__", "linear heads"),
    (Prototypes, "embed", "prototypes"),
    (Prototypes, "grow", "prototypes"),
    (Prototypes, "losses", "prototypes"),
    (Prototypes, "_drift", "drift"),
    (Prototypes, "_alignment", "alignment"),
    (PredLA, "__call__", "PredLA"),
    (PredLA, "match_entropies", "PredLA"),
    (Memory, "insert", "memory"),
    (Memory, "sample", "memory"),
    (Curator, "observe", "curator"),
    (Step, "load", "loader"),
    (Optimizer, "step", "AdamW"),
    (halo, "augment", "augment"),
    (halo, "haf", "losses"),
    (halo, "multi_ce", "losses"),
    (halo, "mixture_nll", "losses"),
]


def breakdown(classes: int, levels: int, steps: int) -> dict[str, float]:
    """Share of each piece in the time of a step, forward and backward; the innermost named piece counts."""
    world = World(full_tree(classes, levels), SIZE)
    ours = Step(world, backbones.load("efficientnet_lite0"))
    with named_pieces(PIECES), profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(steps):
            with record_function(PIECE + "rest"):
                ours.step()
    spent: dict[str, float] = defaultdict(float)
    events = list(found.events())
    forward: dict[int, FunctionEvent] = {}
    for event in sorted(events, key=lambda event: event.time_range.start):  # a backward's operations take numbers, too
        if event.sequence_nr >= 0 and event.scope == 0 and not event.name.startswith(BACKWARD):
            forward.setdefault(event.sequence_nr, event)
    for event in events:
        spent[_piece(event, forward)] += event.self_cpu_time_total
    whole = sum(spent.values())
    return {name: took / whole for name, took in sorted(spent.items(), key=lambda item: -item[1])}


@contextmanager
def named_pieces(pieces: list[tuple[Any, str, str]]) -> Iterator[None]:
    """Label the parts of a step for the profiler."""

    def seen(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            with record_function(PIECE + name):
                return function(*args, **options)

        return called

    with ExitStack() as stack:
        for owner, attribute, name in pieces:
            stack.enter_context(patch.object(owner, attribute, seen(name, getattr(owner, attribute))))
        yield


def _piece(event: FunctionEvent, forward: dict[int, FunctionEvent]) -> str:
    """The part that an operation belongs to; a backward operation belongs to the part of its forward operation."""
    at: FunctionEvent | None = event
    found = "rest"
    while at is not None and found in ("rest", "f"):  # f inside f0 is f0
        if at.name.startswith(BACKWARD) and at.sequence_nr in forward:
            return _piece(forward[at.sequence_nr], {})
        if (
            at.name.startswith(PIECE)
            and at.name != PIECE + "rest"
            and not (found == "f" and not at.name.endswith("f0"))
        ):
            found = at.name.removeprefix(PIECE)
        at = at.cpu_parent
    return found
