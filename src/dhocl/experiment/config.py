"""The configuration of a run.

`dhocl run` takes its options from the fields of `RunConfig` and from its docstring. This module is imported for `dhocl
run --help`, so it does not import PyTorch, which is slow.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.core.outside import spell
from dhocl.core.precision import Precision

Named = Any  # a name, or a class or function, which is stored as `module:name`
Scenario = Literal["dhocl", "iblurry", "hle_single", "hle_dual", "hle_multi", "iirc"]
Decode = Literal["level", "path"]
LEAST = dict.fromkeys(
    ("image_size", "samples", "test_samples", "batch", "eval_every", "eval_samples"), 1
) | dict.fromkeys(("buffer", "replay_batch", "seed"), 0)


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run.

    `method`, `dataset` and `backbone` may be a class or a function. They are stored as `module:name`, by which another
    process imports them.

    Args:
        method: A name from `dhocl list methods`, or `module:Class` of your own.
        dataset: A name from `dhocl list datasets`, or `module:function` of your own.
        data: Folder with the published archive or the extracted files.
        backbone: A name from `dhocl list backbones`, `hub:NAME`, or `module:function` of your own.
        image_size: Side of the images in pixels; default: that of the data set.
        samples: Size of a class-balanced training subset; default: all images.
        test_samples: Size of a class-balanced test subset; default: all images.
        holdout: Evaluate on held-out training images instead of the test images, to choose settings.
        scenario: Order and labels of the stream. `dhocl`: each image labelled at a random level. Of earlier work:
            `iblurry`, finest labels, half of the classes in all groups; `hle_single`, some images by superclass, then
            the others by class; `hle_dual`, all images by superclass, then again by class; `hle_multi`, one level after
            the other; `iirc`, a superclass before its classes. See docs/scenarios.md.
        groups: Groups of classes; they come one after the other.
        overlap: Fraction of a group's classes that also occur in the next group.
        split_level: Level whose classes are split into groups; 0 is the coarsest; default: the finest.
        passes: Repetitions of each group.
        buffer: Images kept for replay.
        batch: Images per batch.
        replay_batch: Images replayed with each batch.
        delay: Batches until the links of a new class are known; inf for never.
        vacant: Fraction of links that are missing.
        noise: Fraction of links that are wrong.
        eval_every: Samples between evaluations; default: a twelfth of the stream, at most 1600.
        eval_samples: Test images, balanced over classes, of all evaluations but the last; default: all of them.
        decode: Accuracy to display: with levels treated as independent, or of consistent paths.
        calibrate: Predict each batch before it is learned, and calibrate the probabilities by it.
        precision: `bfloat16` computes the backbone in mixed precision, on GPUs that are faster with it.
        seed: Seed of the stream and of all random draws.
        settings: Settings of the method that differ from its defaults; as an option `key=value`, may be repeated.

    Example:
        >>> from dhocl.methods.er import ER
        >>> RunConfig(method=ER, samples=400).method
        'dhocl.methods.er:ER'
    """

    method: Named = "amber"
    dataset: Named = "glyphs"
    data: str | Path | None = None
    backbone: Named = "efficientnet_lite0"
    image_size: int | None = None
    samples: int | None = None
    test_samples: int | None = None
    holdout: bool = False
    scenario: Scenario = "dhocl"
    groups: int = 10
    overlap: float = 0.2
    split_level: int | None = None
    passes: int = 1
    buffer: int = 1000
    batch: int = 32
    replay_batch: int = 16
    delay: float = 1
    vacant: float = 0.0
    noise: float = 0.0
    eval_every: int | None = None
    eval_samples: int | None = None
    decode: Decode = "level"
    calibrate: bool = False
    precision: Precision = "float32"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("method", "dataset", "backbone"):
            object.__setattr__(self, name, spell(getattr(self, name)))
        if self.data is not None:
            object.__setattr__(self, "data", str(self.data))
        for name, kind in field_types().items():
            value = getattr(self, name)
            if name in LEAST and value is not None:
                check_least(name, value, LEAST[name])
            if typing.get_origin(kind) is Literal:
                check_choice(name, value, typing.get_args(kind))
        if not (self.delay >= 0 and (math.isinf(self.delay) or self.delay == int(self.delay))):
            raise InputError(f"`delay` {self.delay}: a whole number of batches from 0, or inf")
        if not (self.vacant >= 0 and self.noise >= 0 and self.vacant + self.noise <= 1):
            raise InputError(f"`vacant` {self.vacant}, `noise` {self.noise}: fractions that sum to at most 1")

    def evaluations(self, samples: int) -> int:
        """Samples between evaluations: `eval_every`, or a twelfth of the stream but at most 1,600."""
        return self.eval_every or min(1600, math.ceil(samples / 12))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"delay": "inf" if math.isinf(self.delay) else self.delay}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunConfig:
        try:
            return cls(**fields | {"delay": float(fields["delay"])})
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(
                f"a stored configuration can not be read ({error}): was it made by another version?"
            ) from None


@cache
def field_types() -> dict[str, Any]:
    return typing.get_type_hints(RunConfig)
