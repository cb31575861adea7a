"""The loop: a stream, a curator, a learner, a judge."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dhocl import backbones, checkpoint, data
from dhocl.allocator import keep_freed_memory
from dhocl.backbones import Backbone, side_by_side
from dhocl.config import RunConfig, find_method, method_settings
from dhocl.data import Dataset, Selection
from dhocl.errors import InputError
from dhocl.evaluate import Evaluator, Scores, summarise
from dhocl.knowledge import Corrupted, Curator, KnowledgeSource, Oracle
from dhocl.learner import Batch, Learner, Setup
from dhocl.metrics import correlation
from dhocl.record import MARKS, Record
from dhocl.stream import FIXED, GROUPED, Plan, PlanConfig, Stream, given, plan
from dhocl.taxonomy import Taxonomy


class Progress(NamedTuple):
    """Where a run stands after a batch."""

    step: int
    steps: int
    samples: int
    total: int
    rate: float  # samples learned a second
    taxonomy: Taxonomy
    stats: dict[str, float]
    scores: Scores | None  # where this batch was followed by an evaluation


class Spent:
    """Seconds and work so far, carried over a resume."""

    def __init__(self) -> None:
        self.training = 0.0  # seconds
        self.evaluating = 0.0  # seconds
        self.work = 0  # passes of pixels through a network while learning, as `Meter` counts them
        self.work_of_er = 0  # the same for plain replay: forward and backward of the batch and what is replayed with it

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def run(config: RunConfig, folder: Path, resume: bool = False) -> Iterator[Progress]:
    """Run an experiment, yielding after each batch; its files are in `folder`."""
    keep_freed_memory()
    record = _open(config, folder, resume)
    dataset = load_dataset(config)
    table, ends = make_plan(config, dataset)
    stream = Stream(dataset, table, config.batch)
    backbone = backbones.load(config.backbone)
    learner = make_learner(config, dataset, backbone, stream.samples)
    curator = Curator(make_source(config, dataset), config.delay)
    evaluator = Evaluator(dataset)
    spent = Spent()
    curve: list[Scores] = []

    state = checkpoint.load_newest(record.checkpoints) if resume else None
    if state is None:
        record.start(config, stream.digest(), dataset.levels)
        start = 0
    else:
        if stream.digest() != record.describe()["stream"]:
            raise InputError(f"the data set has changed since {folder} was started: its stream is another one")
        torch.set_num_threads(record.describe()["threads"])  # another number would change the last bits
        learner.load_state_dict(state["learner"])
        curator.load_state_dict(state["curator"])
        spent.load_state_dict(state["spent"])
        start, curve = state["step"], state["curve"]

    finest = len(dataset.levels) - 1
    met = curator.taxonomy.widths.get(finest, 0)  # classes of the finest level at the last evaluation
    every = -(-config.evaluations(stream.samples) // config.batch)
    group_ends = {-(-end // config.batch) for end in ends}  # the step that learns a group's last sample
    for step, (x, labels) in enumerate(stream.batches(start), start + 1):
        stored = min(config.buffer, (step - 1) * config.batch)
        spent.work_of_er += 3 * (len(x) + min(config.replay_batch, stored)) * x[0, 0].numel()
        began, worked = time.perf_counter(), backbone.meter.pixels
        y = curator.observe(labels)
        stats = learner.learn(Batch(x, y), curator.taxonomy)
        spent.training += time.perf_counter() - began
        spent.work += backbone.meter.pixels - worked
        samples = min(step * config.batch, stream.samples)
        scores = None
        periodic = step % every == 0 or step == len(stream)
        if periodic or step in group_ends:
            began = time.perf_counter()
            with backbone.resting(), side_by_side():
                judged = evaluator(
                    learner, curator.taxonomy, stream.streamed(step), sets=bool(ends), classes=step in group_ends
                )
            if ends:
                judged["periodic"] = periodic
            scores = {"step": step, "samples": samples} | judged | _extras(learner, curator.taxonomy, stats)
            spent.evaluating += time.perf_counter() - began
            curve.append(scores)
            record.write_curve(curve)
            record.write_taxonomy(curator.taxonomy)
            before, met = met, curator.taxonomy.widths.get(finest, 0)
            for mark in MARKS:
                if before < mark <= met:
                    record.write_matrices(learner.matrices(), mark)
            parts = {
                "learner": learner.state_dict(),
                "curator": curator.state_dict(),
                "spent": spent.state_dict(),
            }
            checkpoint.save(record.checkpoints, {"step": step, "curve": curve} | parts)
        yield Progress(
            step,
            len(stream),
            samples,
            stream.samples,
            samples / spent.training,
            curator.taxonomy,
            stats,
            scores,
        )
    summary = _summary(curve, spent, stream.samples) | {"state_mb": _nbytes(learner.state_dict()) / 1e6}
    record.finish(summary, learner.matrices())


def load_dataset(config: RunConfig) -> Dataset:
    folder = None if config.data is None else Path(config.data)
    part = Selection(folder, config.image_size, config.samples, config.test_samples, config.holdout, config.seed)
    return data.load(config.dataset, part)


DRIFT = ("overlap", "split_level", "passes")  # how the groups of DHOCL's own stream are made


def make_plan(config: RunConfig, dataset: Dataset) -> Plan:
    nodes, tree = dataset.train.nodes.numpy(), dataset.tree
    if dataset.given:
        _refuse(config, f"{dataset.name} comes in an order of its own", "scenario", "groups", *DRIFT)
        return Plan(given(nodes, tree))
    if config.scenario == "dhocl":
        shape = PlanConfig(config.groups, config.overlap, config.split_level, config.passes, seed=config.seed)
        return Plan(plan(nodes, tree, shape))
    if config.scenario in FIXED:
        _refuse(config, f"--scenario {config.scenario} makes groups of its own", "groups", *DRIFT)
        return FIXED[config.scenario](nodes, tree, config.seed)
    _refuse(config, f"--scenario {config.scenario} deals the images in a way of its own", *DRIFT)
    return GROUPED[config.scenario](nodes, tree, config.groups, config.seed)


def _refuse(config: RunConfig, why: str, *names: str) -> None:
    for name in names:
        if getattr(config, name) != getattr(RunConfig(), name):
            raise InputError(f"{why}: --{name.replace('_', '-')} has no place, leave it out")


def make_source(config: RunConfig, dataset: Dataset) -> KnowledgeSource:
    oracle = Oracle(dataset.tree)
    if config.vacant or config.noise:
        return Corrupted(oracle, config.vacant, config.noise, config.seed)
    return oracle


def make_learner(config: RunConfig, dataset: Dataset, backbone: Backbone, samples: int) -> Learner:
    settings = method_settings(config.method, config.settings)
    setup = Setup(backbone, config.buffer, config.replay_batch, dataset.flip, config.seed, samples)
    return find_method(config.method).learner(setup, settings)  # type: ignore[call-arg]


def _open(config: RunConfig, folder: Path, resume: bool) -> Record:
    """Check what can be checked before anything is written, then make the folder."""
    method_settings(config.method, config.settings)
    record = Record(folder)
    if resume and not record.exists:
        raise InputError(f"nothing to resume: {folder} holds no run")
    if resume and record.finished:
        raise InputError(f"{folder} is finished: see its summary.json, or choose another --out")
    if resume and record.config() != config:
        raise InputError(f"{folder} was started with other settings: see its config.json, or choose another --out")
    if (record.curve() or record.finished) and not resume:
        raise InputError(f"{folder} holds a run already: continue it with --resume, or choose another --out")
    place = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise InputError(f"can not write to {place}: choose another --out")
    return record


def _extras(learner: Learner, taxonomy: Taxonomy, stats: dict[str, float]) -> dict[str, Any]:
    """What the learner says of itself, and how well its prototypes mirror the known tree."""
    structure = {}
    for name, matrix in learner.matrices().items():
        tree = taxonomy.distances(int(name.split(".")[1]))
        above = torch.ones_like(tree, dtype=torch.bool).triu(1)
        structure[name] = correlation(matrix[above], tree[above])
    return {
        "classes": taxonomy.widths,
        "unanchored": len(taxonomy.unanchored),
        "held": {str(level): len(rows) for level, rows, _ in taxonomy.by_level(learner.held())},
        "learner": stats,
        "structure": structure,
    }


def _nbytes(state: Any) -> int:
    """Bytes of the tensors in nested dicts: what a method keeps while it learns."""
    if isinstance(state, dict):
        return sum(map(_nbytes, state.values()))
    return state.nbytes if isinstance(state, torch.Tensor) else 0


def _summary(curve: list[Scores], spent: Spent, samples: int) -> dict[str, Any]:
    return summarise(curve) | {
        "samples_per_second": samples / spent.training,
        "cost_vs_er": spent.work / spent.work_of_er,
        "seconds_training": spent.training,
        "seconds_evaluating": spent.evaluating,
        "structure": curve[-1]["structure"],
    }
