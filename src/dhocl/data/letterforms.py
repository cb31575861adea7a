"""Shapes of characters in the DejaVu fonts of matplotlib, and a test which of them look different."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter, ImageFont

EM = 64  # pixels; shapes are drawn at this size and scaled down from it
GRID = 48  # pixels of the square in which two shapes are compared
DISTINCT = 0.29  # see `distinct`


@cache
def _folder() -> Path:
    import matplotlib  # here because it is slow to import, and a cached data set needs no fonts

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@cache
def font(face: str) -> ImageFont.FreeTypeFont:
    # the other layout engine needs a library that may be missing
    return ImageFont.truetype(_folder() / f"DejaVu{face}.ttf", EM, layout_engine=ImageFont.Layout.BASIC)


def shared(faces: Sequence[str]) -> set[str]:
    """The characters that every face has."""
    from matplotlib.ft2font import FT2Font

    maps = [FT2Font(_folder() / f"DejaVu{face}.ttf").get_charmap() for face in faces]
    return {chr(code) for code in set.intersection(*map(set, maps))}


def shape(character: str, face: str) -> Image.Image:
    """The character in white on black, cropped to its bounding box."""
    page = Image.new("L", (3 * EM, 3 * EM))
    ImageDraw.Draw(page).text((EM, EM), character, fill=255, font=font(face))
    return page.crop(page.getbbox())


def distinct(characters: Sequence[str], faces: Sequence[str]) -> list[str]:
    """The characters, without those that look like an earlier one in any of the faces.

    Shapes are scaled to one square and blurred. Two look alike if no pixel differs by `DISTINCT` or more, where 1 is
    black against white. That separates é from è, but not Latin A from Greek Α, nor s from S, nor (in italics) Latin m
    from Cyrillic т: of each such pair only the first is kept.
    """
    apart = torch.full((len(characters), len(characters)), 1.0)
    for face in faces:
        ink = torch.from_numpy(np.stack([_blurred(character, face) for character in characters]))
        apart = torch.minimum(apart, torch.cdist(ink, ink, p=float("inf")))
    kept: list[int] = []
    for row in range(len(characters)):
        if not (apart[row, kept] < DISTINCT).any():
            kept.append(row)
    return [characters[row] for row in kept]


def _blurred(character: str, face: str) -> np.ndarray:
    """(pixels,) from 0 to 1: the shape, scaled to fit the square."""
    margin = GRID // 12  # room for the blur
    side = GRID - 2 * margin
    ink = shape(character, face)
    fitted = ink.resize([max(1, round(edge * side / max(ink.size))) for edge in ink.size])
    square = Image.new("L", (GRID, GRID))
    square.paste(fitted, ((GRID - fitted.width) // 2, (GRID - fitted.height) // 2))
    soft = square.filter(ImageFilter.GaussianBlur(GRID / 24)).reduce(2)
    return np.asarray(soft, dtype=np.float32).ravel() / 255
