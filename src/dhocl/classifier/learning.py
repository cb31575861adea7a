"""Learn photographs with labels into the folder of a model, image by image once, also after an interruption."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dhocl.classifier.classifier import Classifier
from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.files import locked
from dhocl.core.rng import Rng
from dhocl.data.album import Album, Photo, open_album
from dhocl.data.files import read_each
from dhocl.data.spelling import questions
from dhocl.knowledge import open_tree

logger = logging.getLogger(__name__)

AT_LEAST = 60.0  # seconds between checkpoints


class Progress(NamedTuple):
    """After a batch."""

    done: int  # of `total`
    total: int  # images of this data set to be learned
    learned: int  # without those that can not be read
    before: int  # images that an earlier call has learned
    saved: int  # images that another call need not learn again
    problems: list[str]  # about images of this batch that can not be read
    classifier: Classifier


def learn_album(folder: Path, data: Path, options: dict[str, Any], every: int = 1000) -> Iterator[Progress]:
    """Learn the photographs of `data`, except test images and those that this model has learned before.

    An image is the same if its path below `data`, its size and its label are. Without times, the order is random.

    Args:
        folder: of the model. It is created if there is none.
        data: see `dhocl.data.album`.
        options: of a new `Classifier`. An existing model keeps its own.
        every: images between checkpoints. There is at least one per minute.

    Yields:
        Progress, first before the first batch.
    """
    with opened(folder, data, options) as (classifier, album):
        yield from _learn(folder, classifier, _in_order(album, classifier.model.config.seed), every)


@contextmanager
def opened(folder: Path, data: Path, options: dict[str, Any]) -> Iterator[tuple[Classifier, Album]]:
    """The model in a folder, or a new one, and photographs to learn, which it knows the tree of. The folder is locked.

    Questions about labels are logged.
    """
    _check_folder(folder)
    with ExitStack() as stack:
        if exists := (folder / "checkpoints").exists():
            stack.enter_context(locked(folder))  # before it is read: another process may be writing
        classifier, album = _existing(folder, data, options) if exists else _new(data, options)
        if all(photo.test for photo in album.photos):
            raise InputError("all photographs are marked as test: mark some rows split=train")
        _ask(classifier, album)
        for child, kept, other in classifier.model.extend(album.tree):
            logger.warning(
                "is %s below %s, or below %s as in %s? The former is kept", child.name, kept.name, other.name, data
            )
        if not exists:
            stack.enter_context(locked(folder))
            if (folder / "checkpoints").exists():
                raise InputError(f"another process has just made a model in {folder}: repeat the command")
        yield classifier, album


def _check_folder(folder: Path) -> None:
    if (folder / "config.json").exists() or (folder / "journal.sqlite").exists():
        raise InputError(
            f"{folder} is the folder of a run or of a service: copy its folder checkpoints to a new one, and give that"
        )


def _existing(folder: Path, data: Path, options: dict[str, Any]) -> tuple[Classifier, Album]:
    classifier = Classifier.load(folder, device=options.get("device", "auto"))
    made_of = classifier.model.config.to_json()
    for name, value in options.items():
        own = made_of.get(name)
        if name not in ("tree", "device") and own != (list(value) if name == "levels" else value):
            shown = ",".join(own) if isinstance(own, list) else own
            raise InputError(f"the model in {folder} was created with `{name}` {shown}: leave the option out")
    if tree := options.get("tree"):
        classifier.model.extend(open_tree(tree, classifier.levels))
    return classifier, open_album(data, classifier.levels)


def _new(data: Path, options: dict[str, Any]) -> tuple[Classifier, Album]:
    album = open_album(data, options.get("levels", ()))
    return Classifier(**options | {"levels": album.levels}), album


def _ask(classifier: Classifier, album: Album) -> None:
    """Log questions about labels that look like mistakes."""
    model = classifier.model
    known = [*model.taxonomy, *(model.tree or ()), *album.stated]
    for question in questions(Counter(photo.label for photo in album.photos), known, classifier.levels):
        logger.warning("%s", question)


def _in_order(album: Album, seed: int) -> list[Photo]:
    photos = [photo for photo in album.photos if not photo.test]
    order = range(len(photos)) if album.ordered else Rng(seed, "learn").permutation(len(photos)).tolist()
    return [photos[row] for row in order]


def _learn(folder: Path, classifier: Classifier, photos: Sequence[Photo], every: int) -> Iterator[Progress]:
    fresh, before = unlearned(classifier, photos)
    learned, skipped, saved, at = 0, 0, 0, time.monotonic()
    size = classifier.model.config.image_size
    yield Progress(0, len(fresh), 0, before, 0, [], classifier)
    for read, x in read_each(fresh.items(), lambda item: item[1].path, size, classifier.batch):
        good = [item for item, problem in read if not problem]
        skipped += len(read) - len(good)
        if good:
            classifier.learn(x, [(photo.label.name, classifier.levels[photo.label.level]) for _, photo in good])
            classifier.learned = torch.cat([classifier.learned, torch.tensor([mark for mark, _ in good])])
            learned += len(good)
        if learned - saved >= every or (learned > saved and time.monotonic() - at > AT_LEAST):
            checkpoint.save(folder / "checkpoints", classifier.state_dict())
            saved, at = learned, time.monotonic()
        problems = [problem for _, problem in read if problem]
        yield Progress(learned + skipped, len(fresh), learned, before, saved, problems, classifier)
    if learned > saved:
        checkpoint.save(folder / "checkpoints", classifier.state_dict())
    yield Progress(learned + skipped, len(fresh), learned, before, learned, [], classifier)


def unlearned(classifier: Classifier, photos: Iterable[Photo]) -> tuple[dict[int, Photo], int]:
    """The photographs to learn by their identity, each once, and how many were learned before."""
    known = set(classifier.learned.tolist())
    marks = {identity(photo): photo for photo in photos}
    fresh = {mark: photo for mark, photo in marks.items() if mark not in known}
    return fresh, len(marks) - len(fresh)


def identity(photo: Photo) -> int:
    """64 bits of path, size and label. What is behind an address or in a table has no size of its own."""
    size = photo.path.stat().st_size if isinstance(photo.path, Path) and photo.path.is_file() else -1
    text = f"{photo.name}\0{size}\0{photo.label.name}\0{photo.label.level}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
