"""Predict and evaluate image files, however many: they are read in batches, and nothing is kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.classifier.classifier import Classifier
from dhocl.classifier.evaluation import Evaluation, Evaluator
from dhocl.classifier.prediction import FALSE_ALARMS, Prediction, name_predictions
from dhocl.classifier.restriction import restrict
from dhocl.classifier.suggested import Suggested
from dhocl.core.decode import Decoding, restricted
from dhocl.core.places import Remote
from dhocl.data.album import Photo
from dhocl.data.files import read_each
from dhocl.knowledge import Silent

BATCH = 64  # images predicted at once


class Predicted(NamedTuple):
    path: Path | Remote
    prediction: Prediction | None  # None if the image can not be read
    problem: str


def open_model(folder: Path, device: str = "auto") -> Classifier:
    """A model to predict with. It needs no knowledge source, even if it learned with one."""
    return Classifier.load(folder, source=Silent(), device=device)


def predict_files(
    classifier: Classifier,
    paths: Iterable[Path | Remote],
    *,
    decode: Decoding = "path",
    top: int = 1,
    within: str | None = None,
    among: Path | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> Iterator[Predicted]:
    """A prediction of each file, in order. Arguments are those of `Classifier.predict`."""
    reader = classifier.reader()
    tree, levels = reader.taxonomy, reader.levels
    inside = restrict(tree, levels, within, among).inside(tree)
    for read, x in read_each(paths, lambda path: path, reader.model.config.image_size, BATCH):
        beliefs = restricted(reader.model.beliefs(x), inside) if len(x) else None
        found = iter(name_predictions(beliefs, tree, levels, decode, top, false_alarms) if beliefs else ())
        for path, problem in read:
            yield Predicted(path, None if problem else next(found), problem)


class Candidates(NamedTuple):
    """Files to choose from."""

    paths: list[Path | Remote]  # that can be read
    suggestions: list[Suggested]  # best first; `row` is an index of `paths`
    problems: list[str]


def suggest_files(classifier: Classifier, paths: Iterable[Path | Remote], count: int) -> Iterator[int | Candidates]:
    """Which files to label next. Yields the number of images read, and last the result, unless none can be read."""
    reader = classifier.reader()
    good: list[Path | Remote] = []
    kept: list[Tensor] = []
    problems: list[str] = []
    for read, x in read_each(paths, lambda path: path, reader.model.config.image_size, BATCH):
        problems += [problem for _, problem in read if problem]
        if len(x):
            phi = reader.model.frozen_features(x)
            kept.append(x if phi is None else phi)
            good += [path for path, problem in read if not problem]
        yield len(good) + len(problems)
    if good:
        x = torch.cat(kept)
        yield Candidates(good, reader.named_suggestions(x, reader.model.suggest(x, count)), problems)


class Judgement(NamedTuple):
    evaluation: Evaluation
    photos: list[Photo]  # that were evaluated; `row` of a mistake is an index
    problems: list[str]


def evaluate_files(
    classifier: Classifier, photos: Sequence[Photo], *, decode: Decoding = "path"
) -> Iterator[int | Judgement]:
    """Compare predictions of files with their labels. Yields the number of images done, and last the result."""
    reader = classifier.reader()
    evaluator, judged, problems = Evaluator(reader.taxonomy, reader.levels, decode), [], []
    for read, x in read_each(photos, lambda photo: photo.path, reader.model.config.image_size, BATCH):
        good = [photo for photo, problem in read if not problem]
        problems += [problem for _, problem in read if problem]
        if good:
            truths = [{level: name for level, name in enumerate(photo.lineage) if name} for photo in good]
            evaluator.add(reader.model.beliefs(x), truths)
            judged += good
        yield len(judged) + len(problems)
    if judged:
        yield Judgement(evaluator.result(), judged, problems)
