"""Merge models in folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from dhocl.classifier.classifier import Classifier
from dhocl.classifier.files import open_model
from dhocl.core.errors import InputError
from dhocl.core.joining import Contradiction
from dhocl.model.merging import merge, strip


def merge_folders(
    folders: Sequence[Path], out: Path, sums_only: bool = False
) -> tuple[Classifier, list[Contradiction]]:
    """Merge the models in `folders` and write the result to `out`, a new or an empty folder.

    With `sums_only`, features and marks of single images are left out.

    Returns the merged model, and links that contradict those of an earlier folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not empty: choose a new folder")
    merged, *others = folders
    classifier, contradictions = open_model(merged), []
    for folder in others:
        other = open_model(folder)
        try:
            contradictions += merge(classifier.model, other.model)
        except InputError as error:
            raise InputError(f"{merged} and {folder}: {error}") from None
        classifier.learned = torch.unique(torch.cat([classifier.learned, other.learned]))
    if sums_only:
        strip(classifier.model)
        classifier.learned = classifier.learned[:0]
    classifier.model.source = None  # it was opened without
    classifier.save(out)
    return classifier, contradictions
