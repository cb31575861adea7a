"""Render shapes like photographs: rotated, coloured, on an uneven background, blurred and noisy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter

from dhocl.data.letterforms import EM


class Style(NamedTuple):
    """Ranges of the random transformations."""

    tilt: float = np.pi / 12  # largest rotation; small enough to keep arrow directions and accents distinct
    shear: float = 0.2
    scale: tuple[float, float] = (0.7, 0.9)  # of the shape, in an image of `EM` pixels
    stretch: float = 0.08  # log of the largest change of aspect
    shift: float = 0.07  # in sides of the image
    contrast: float = 80.0  # smallest difference of brightness between letter and background, of 255
    uneven: float = 22.0  # standard deviation of the background colour
    patches: int = 5  # side of the coarse grid from which the background is interpolated
    blur: float = 1.1  # largest radius, in an image of `EM` pixels
    noise: float = 16.0  # largest standard deviation of pixel brightness


STYLE = Style()
BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # perceived, of red, green and blue


def render(shapes: Sequence[Image.Image], size: int, rng: np.random.Generator) -> np.ndarray:
    """(n, size, size, 3) uint8: an image of each shape."""
    n = len(shapes)
    ink = np.stack([_placed(shape, size, rng) for shape in shapes])[..., None] / np.float32(255)
    ground_colour = rng.uniform(0, 255, (n, 3))
    ground = _uneven(ground_colour, size, rng)
    letter = _contrasting(ground_colour, rng)[:, None, None].astype(np.float32)
    grain = rng.uniform(0, STYLE.noise, (n, 1, 1, 1)).astype(np.float32)
    noise = grain * rng.standard_normal((n, size, size, 1), dtype=np.float32)
    picture: np.ndarray = ground + (letter - ground) * ink + noise
    return picture.clip(0, 255).astype(np.uint8)


def _placed(shape: Image.Image, size: int, rng: np.random.Generator) -> np.ndarray:
    """(size, size) uint8: the shape rotated, sheared, scaled, shifted and blurred."""
    turn, shear = rng.uniform(-STYLE.tilt, STYLE.tilt), rng.uniform(-STYLE.shear, STYLE.shear)
    scale, stretch = rng.uniform(*STYLE.scale) * size / EM, np.exp(rng.uniform(-STYLE.stretch, STYLE.stretch))
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    forward = rotation @ np.array([[1, shear], [0, 1]]) @ np.diag([scale * stretch, scale / stretch])
    back = np.linalg.inv(forward)  # PIL maps output pixels to input pixels
    centre = size / 2 + rng.uniform(-STYLE.shift, STYLE.shift, 2) * size
    start = np.array(shape.size) / 2 - back @ centre
    placed = shape.transform(
        (size, size),
        Image.Transform.AFFINE,
        (back[0, 0], back[0, 1], start[0], back[1, 0], back[1, 1], start[1]),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(placed.filter(ImageFilter.GaussianBlur(rng.uniform(0, STYLE.blur * size / EM))))


def _uneven(colour: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 3) colours -> (n, size, size, 3) backgrounds that vary around them, linearly interpolated."""
    patches = colour[..., None, None] + rng.normal(0, STYLE.uneven, (*colour.shape, STYLE.patches, STYLE.patches))
    place = np.linspace(0, STYLE.patches - 1, size)
    weights = np.clip(1 - np.abs(place[:, None] - np.arange(STYLE.patches)), 0, 1).astype(np.float32)
    ground: np.ndarray = weights @ patches.astype(np.float32) @ weights.T
    return ground.transpose(0, 2, 3, 1)


def _contrasting(ground: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, 3) -> (n, 3): random colours, moved towards black or white until they contrast with the background."""
    colour = rng.uniform(0, 255, ground.shape)
    level = ground @ BRIGHTNESS
    pole = np.where(level < 127.5, 255.0, 0.0)  # the farther one
    least = level + np.sign(pole - level) * STYLE.contrast
    share = (least - colour @ BRIGHTNESS) / (pole - colour @ BRIGHTNESS)
    moved: np.ndarray = colour + np.clip(share, 0, 1)[:, None] * (pole[:, None] - colour)
    return moved
