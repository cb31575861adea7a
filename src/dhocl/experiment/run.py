"""Run an experiment: a model learns a stream, is evaluated, and results are recorded."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dhocl import data
from dhocl.core import checkpoint
from dhocl.core.errors import InputError, usable
from dhocl.core.files import locked
from dhocl.core.taxonomy import Taxonomy
from dhocl.data import Dataset, Selection
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import Evaluator, Scores, summarise
from dhocl.experiment.metrics import correlation
from dhocl.experiment.needs import check_memory
from dhocl.experiment.record import MARKS, Record
from dhocl.knowledge import Corrupted, Curator, Oracle
from dhocl.methods.registry import method_settings
from dhocl.model import Model, ModelConfig
from dhocl.nn.backbones import side_by_side
from dhocl.stream import FIXED, GROUPED, Plan, PlanConfig, Stream, given, plan

logger = logging.getLogger(__name__)


class Progress(NamedTuple):
    """The state of a run after a batch."""

    step: int
    steps: int
    samples: int
    total: int
    rate: float  # samples per second of training
    taxonomy: Taxonomy
    stats: dict[str, float]
    scores: Scores | None  # if an evaluation followed this batch


class Spent:
    """Time, compute and memory so far, stored in checkpoints."""

    def __init__(self) -> None:
        self.training = 0.0  # seconds
        self.evaluating = 0.0  # seconds
        self.work = 0  # pixels passed through a network while learning, as `Meter` counts them
        self.work_of_er = 0  # the same for ER: forward and backward pass of the batch and its replayed images
        self.state = 0  # bytes of the learner's state, the largest that was measured

    def measure(self, model: Model) -> None:
        self.state = max(self.state, nbytes(model.learner.state_dict()))

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Result(NamedTuple):
    """A finished run: the metrics of summary.json, and the scores of each evaluation."""

    summary: dict[str, Any]
    curve: list[Scores]


def run_to_end(config: RunConfig, folder: str | Path | None = None, device: str = "auto") -> Result:
    """Run an experiment, or finish the one in `folder`, and return its results.

    Args:
        config: the configuration.
        folder: for the files of the run (see `Record`); None writes to a temporary folder.
        device: where to compute: `cpu`, `cuda`, `cuda:1`; `auto` is a GPU if there is one.

    >>> from dhocl import RunConfig, run_to_end
    >>> small = {"backbone": "tiny", "image_size": 32, "samples": 96, "test_samples": 50, "groups": 2}
    >>> result = run_to_end(RunConfig(method="acil", **small))
    >>> len(result.curve), sorted(result.summary)[:3]
    (3, ['AAUC', 'FAAcc', 'FAUC'])
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return run_to_end(config, Path(place) / "run", device)
    record = Record(Path(folder))
    if record.finished and record.config() == config:
        record.check_defaults()
    else:
        deque(run(config, record.folder, resume=bool(record.curve()), device=device), maxlen=0)
    return Result(record.summary(), record.curve())


def run(config: RunConfig, folder: str | Path, resume: bool = False, device: str = "auto") -> Iterator[Progress]:
    """Run an experiment step by step.

    Args:
        config: the configuration.
        folder: for the files of the run (see `Record`).
        resume: continue from the last checkpoint in `folder`. For bit-identical results, set torch's number of threads
            to `threads` of config.json and use deterministic GPU kernels, as the command `dhocl run --resume` does.
        device: as for `run_to_end`. A run may continue on another one.

    Yields:
        Progress after each batch.
    """
    record = _open(config, Path(folder), resume)
    dataset = load_dataset(config)
    table, ends = make_plan(config, dataset)
    stream = Stream(dataset, table, config.batch)
    model = make_model(config, dataset, stream.samples, device)
    check_memory(config, model, stream.samples)
    with locked(record.folder):
        _open(config, record.folder, resume)  # another process may have started or finished it meanwhile
        yield from _run(config, record, model, dataset, stream, ends, resume)


def _run(
    config: RunConfig,
    record: Record,
    model: Model,
    dataset: Dataset,
    stream: Stream,
    ends: Sequence[int],
    resume: bool,
) -> Iterator[Progress]:
    at_last = Evaluator(dataset)
    often = Evaluator(dataset.with_fewer_tests(config.eval_samples, config.seed)) if config.eval_samples else at_last
    spent = Spent()
    curve: list[Scores] = []

    state = checkpoint.load_newest(record.checkpoints) if resume else None
    if state is None:
        record.start(config, stream.digest(), dataset.levels, str(model.device))
        start = 0
    else:
        if stream.digest() != record.describe()["stream"]:
            raise InputError(f"the data set has changed since {record.folder} was started: start a run in a new folder")
        if (threads := record.describe()["threads"]) != torch.get_num_threads():
            logger.warning("started with %d threads: the last bits of results may differ", threads)
        if (started := torch.device(record.describe().get("device", "cpu"))).type != model.device.type:
            logger.warning("started on %s: the last bits of results may differ", started)
        with usable(record.checkpoints, checkpoint.ADVICE):
            model.load_state_dict(state["model"])
            spent.load_state_dict(state["run"]["spent"])
            spent.measure(model)  # checkpoints of earlier versions have no measurement
            start, curve = state["run"]["step"], state["run"]["curve"]

    finest = len(dataset.levels) - 1
    met = model.taxonomy.widths.get(finest, 0)  # classes of the finest level at the last evaluation
    every = -(-config.evaluations(stream.samples) // config.batch)
    group_ends = {-(-end // config.batch) for end in ends}  # steps that learn the last sample of a group
    for step, (x, labels) in enumerate(stream.batches(start), start + 1):
        last = step == len(stream)
        periodic = last or step % every == 0
        evaluates = periodic or step in group_ends
        if evaluates:
            spent.measure(model)  # also before the step, in which a method may empty a store
        stored = min(config.buffer, (step - 1) * config.batch)
        spent.work_of_er += 3 * (len(x) + min(config.replay_batch, stored)) * x[0, 0].numel()
        began, worked = time.perf_counter(), model.backbone.meter.pixels
        stats = model.observe(x, labels).stats
        spent.training += time.perf_counter() - began
        spent.work += model.backbone.meter.pixels - worked
        samples = min(step * config.batch, stream.samples)
        scores = None
        if evaluates:
            spent.measure(model)
            began = time.perf_counter()
            evaluator = at_last if last else often
            with model.resting(), side_by_side():
                evaluated = evaluator(model, stream.streamed(step), bool(ends), step in group_ends)
            if ends:
                evaluated["periodic"] = periodic
            scores = {"step": step, "samples": samples} | evaluated | _extras(model, stats)
            spent.evaluating += time.perf_counter() - began
            curve.append(scores)
            record.write_curve(curve)
            record.write_taxonomy(model.taxonomy)
            if last:
                record.write_mistakes(evaluator.mistakes(model.taxonomy))
            before, met = met, model.taxonomy.widths.get(finest, 0)
            for mark in MARKS:
                if before < mark <= met:
                    record.write_matrices(model.learner.matrices(), mark)
            own = {"step": step, "curve": curve, "spent": spent.state_dict()}
            checkpoint.save(record.checkpoints, {"model": model.state_dict(), "batch": config.batch, "run": own})
        rate = samples / spent.training
        yield Progress(step, len(stream), samples, stream.samples, rate, model.taxonomy, stats, scores)
    record.finish(_summary(curve, spent, stream.samples), model.learner.matrices())


def load_dataset(config: RunConfig) -> Dataset:
    folder = None if config.data is None else Path(config.data)
    part = Selection(folder, config.image_size, config.samples, config.test_samples, config.holdout, config.seed)
    return data.load(config.dataset, part)


DRIFT = ("overlap", "split_level", "passes")  # options of the `dhocl` scenario only
ORDER = ("scenario", "groups", *DRIFT)


def make_plan(config: RunConfig, dataset: Dataset) -> Plan:
    nodes, tree = dataset.train.nodes.numpy(), dataset.tree
    if dataset.given:
        _refuse(config, f"{dataset.name} is a stream with an order of its own", *ORDER)
        return Plan(given(nodes, tree))
    if config.scenario == "dhocl":
        shape = PlanConfig(config.groups, config.overlap, config.split_level, config.passes, seed=config.seed)
        return Plan(plan(nodes, tree, shape))
    if config.scenario in FIXED:
        _refuse(config, f"`scenario` {config.scenario} makes its own groups", "groups", *DRIFT)
        return FIXED[config.scenario](nodes, tree, config.seed)
    _refuse(config, f"`scenario` {config.scenario} makes its own groups", *DRIFT)
    return GROUPED[config.scenario](nodes, tree, config.groups, config.seed)


def reorders(config: RunConfig) -> bool:
    """Whether it needs a stream that is planned, not one with an order of its own."""
    return bool(_chosen(config, *ORDER))


def _refuse(config: RunConfig, why: str, *names: str) -> None:
    if chosen := _chosen(config, *names):
        raise InputError(f"{why}: `{chosen[0]}` does not apply, leave it out")


def _chosen(config: RunConfig, *names: str) -> list[str]:
    return [name for name in names if getattr(config, name) != getattr(RunConfig(), name)]


def make_model(config: RunConfig, dataset: Dataset, samples: int, device: str = "auto") -> Model:
    made_of = ModelConfig(
        levels=dataset.levels,
        method=config.method,
        backbone=config.backbone,
        image_size=dataset.image_size,
        buffer=config.buffer,
        replay_batch=config.replay_batch,
        flip=dataset.flip,
        seed=config.seed,
        settings=config.settings,
        samples=samples,
        delay=config.delay,
        calibrate=config.calibrate,
        precision=config.precision,
    )
    if not (config.vacant or config.noise):
        return Model(made_of, tree=dataset.tree, device=device)
    wrong = Corrupted(Oracle(dataset.tree), config.vacant, config.noise, config.seed)
    return Model(made_of, curator=Curator(wrong, config.delay), device=device)


def _open(config: RunConfig, folder: Path, resume: bool) -> Record:
    """Check configuration and folder before anything is written."""
    method_settings(config.method, config.settings)
    record = Record(folder)
    if resume and not record.exists:
        raise InputError(f"nothing to resume: {folder} has no run")
    if resume and record.finished:
        raise InputError(f"{folder} is finished: see its summary.json, or choose another folder")
    if resume and record.config() != config:
        raise InputError(f"{folder} was started with other settings: see its config.json, or choose another folder")
    if resume:
        record.check_defaults()
    if (record.curve() or record.finished) and not resume:
        raise InputError(f"{folder} has a run already: continue it with `resume`, or choose another folder")
    place = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise InputError(f"can not write to {place}: choose another folder")
    return record


def _extras(model: Model, stats: dict[str, float]) -> dict[str, Any]:
    """Statistics of tree and learner, and the correlation of prototype distances with those of the known tree."""
    learner, taxonomy, structure = model.learner, model.taxonomy, {}
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


def nbytes(state: Any) -> int:
    """Bytes of the tensors in nested dicts."""
    if isinstance(state, dict):
        return sum(map(nbytes, state.values()))
    return state.nbytes if isinstance(state, torch.Tensor) else 0


def _summary(curve: list[Scores], spent: Spent, samples: int) -> dict[str, Any]:
    return summarise(curve) | {
        "samples_per_second": samples / spent.training,
        "cost_vs_er": spent.work / spent.work_of_er,
        "state_mb": spent.state / 1e6,
        "seconds_training": spent.training,
        "seconds_evaluating": spent.evaluating,
        "structure": curve[-1]["structure"],
    }
