"""What a run gets wrong at its end: which classes are confused, and examples with their images."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.data.files import Images, read_ahead

PAIRS = 20  # confusions of a level that are kept
EXAMPLES = 12  # images that are kept
SIDE = 96  # pixels of a kept image


class Judged(NamedTuple):
    """Classes predicted for n images (see `Beliefs.choices`), in columns of the true tree."""

    predicted: Tensor  # (n, levels)
    true: Tensor  # (n, levels), -1 where the image does not count
    confidence: Tensor  # (n, levels)


def mistakes(judged: Judged, tree: Taxonomy, images: Images) -> dict[str, Any]:
    """The confusions of each level, most frequent first, and the worst mistakes with their images; JSON."""
    names = [[tree.labels[node].name for node in tree.nodes(level).tolist()] for level in tree.levels]
    places = {str(level): place for place, level in enumerate(tree.levels)}
    counted, right = judged.true != UNKNOWN, judged.predicted == judged.true
    return {
        "images": {level: int(counted[:, place].sum()) for level, place in places.items()},
        "right": {level: int((counted & right)[:, place].sum()) for level, place in places.items()},
        "confusions": {level: confusions(judged, place, names[place]) for level, place in places.items()},
        "examples": _examples(judged, worst(judged), names, images),
    }


def confusions(judged: Judged, place: int, names: list[str]) -> list[dict[str, Any]]:
    """Pairs of classes of one level, without right predictions."""
    predicted, true = judged.predicted[:, place], judged.true[:, place]
    wrong = (true != UNKNOWN) & (predicted != true)
    pairs, counts = torch.unique(torch.stack([true, predicted], 1)[wrong], dim=0, return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:PAIRS].tolist()
    return [
        {"true": names[int(pairs[row, 0])], "predicted": names[int(pairs[row, 1])], "images": int(counts[row])}
        for row in order
    ]


def worst(judged: Judged) -> list[int]:
    """Rows that are wrong at the most levels, of these the surest; one row for each pair of classes."""
    counted = judged.true != UNKNOWN
    wrong = counted & (judged.predicted != judged.true)
    finest = torch.arange(counted.shape[1]).where(counted, -1).amax(1).clamp_min(0)[:, None]  # (n, 1)
    predicted, true, sure = (part.gather(1, finest)[:, 0].tolist() for part in judged)
    heights = wrong.sum(1).tolist()
    rows: dict[tuple[int, int, int], int] = {}
    for row in sorted(wrong.any(1).nonzero()[:, 0].tolist(), key=lambda row: (-heights[row], -sure[row])):
        rows.setdefault((int(finest[row]), true[row], predicted[row]), row)
    return list(rows.values())[:EXAMPLES]


def _examples(judged: Judged, rows: list[int], names: list[list[str]], images: Images) -> list[dict[str, Any]]:
    def path(columns: Tensor) -> list[str]:
        return [own[column] for own, column in zip(names, columns.tolist(), strict=True) if column != UNKNOWN]

    found = next(iter(read_ahead(images, [torch.tensor(rows)]))) if rows else ()
    return [
        {
            "true": path(judged.true[row]),
            "predicted": path(judged.predicted[row].where(judged.true[row] != UNKNOWN, UNKNOWN)),
            "probability": float(judged.confidence[row][judged.true[row] != UNKNOWN][-1]),
            "jpeg": _jpeg(image),
        }
        for row, image in zip(rows, found, strict=True)
    ]


def _jpeg(image: Tensor) -> str:
    """(3, H, W) uint8 -> base64"""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    picture.thumbnail((SIDE, SIDE))
    file = BytesIO()
    picture.save(file, "JPEG", quality=80)
    return b64encode(file.getvalue()).decode()
