"""The configuration of a run.

`dhocl run` takes its options from the fields of `RunConfig`. This module is imported for `dhocl run --help`, so it does
not import PyTorch, which is slow.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from dhocl.core.errors import InputError, check_choice, check_least
from dhocl.core.outside import spell

Named = Any  # a name, or a class or function, which is stored as `module:name`
Scenario = Literal["dhocl", "iblurry", "hle_single", "hle_dual", "hle_multi", "iirc"]
Decode = Literal["level", "path"]

LEARNER = "Learner"  # the panels of `dhocl run --help`
DATA = "Data"
STREAM = "Stream"
KNOWLEDGE = "Knowledge source"
OUTPUT = "Output"


class Option(NamedTuple):
    """The option of `dhocl run` for a field."""

    panel: str
    help: str
    least: int | None = None  # the smallest value
    flag: str | None = None  # if it differs from the name of the field
    metavar: str | None = None


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run. `dhocl run --help` describes each field.

    `method`, `dataset` and `backbone` are names, or a class or function of your own. These are stored as `module:name`,
    so that another process can import them.

    >>> from dhocl.methods.er import ER
    >>> RunConfig(method=ER, samples=400).method
    'dhocl.methods.er:ER'
    """

    method: Annotated[Named, Option(LEARNER, "A name from `dhocl list methods`, or `module:Class` of your own.")] = (
        "halo"
    )
    dataset: Annotated[Named, Option(DATA, "A name from `dhocl list datasets`, or `module:function` of your own.")] = (
        "glyphs"
    )
    data: Annotated[str | Path | None, Option(DATA, "Folder with the published archive or the extracted files.")] = None
    backbone: Annotated[
        Named,
        Option(LEARNER, "A name from `dhocl list backbones`, `hub:NAME`, or `module:function` of your own."),
    ] = "efficientnet_lite0"
    image_size: Annotated[
        int | None, Option(DATA, "Side of the images in pixels; default: that of the data set.", least=1)
    ] = None
    samples: Annotated[
        int | None, Option(DATA, "Size of a class-balanced training subset; default: all images.", least=1)
    ] = None
    test_samples: Annotated[
        int | None, Option(DATA, "Size of a class-balanced test subset; default: all images.", least=1)
    ] = None
    holdout: Annotated[
        bool, Option(DATA, "Evaluate on held-out training images instead of the test images, to choose settings.")
    ] = False
    scenario: Annotated[
        Scenario,
        Option(
            STREAM,
            "Order and labels of the stream. `dhocl`: each image labelled at a random level. Of earlier work: "
            "`iblurry`, finest labels, half of the classes in all groups; `hle_single`, some images by superclass, "
            "then the others by class; `hle_dual`, all images by superclass, then again by class; `hle_multi`, one "
            "level after the other; `iirc`, a superclass before its classes. See docs/scenarios.md.",
            metavar="NAME",
        ),
    ] = "dhocl"
    groups: Annotated[int, Option(STREAM, "Groups of classes; they come one after the other.")] = 10
    overlap: Annotated[float, Option(STREAM, "Fraction of a group's classes that also occur in the next group.")] = 0.2
    split_level: Annotated[
        int | None, Option(STREAM, "Level whose classes are split into groups; 0 is the coarsest; default: the finest.")
    ] = None
    passes: Annotated[int, Option(STREAM, "Repetitions of each group.")] = 1
    buffer: Annotated[int, Option(LEARNER, "Images kept for replay.", least=0)] = 1000
    batch: Annotated[int, Option(STREAM, "Images per batch.", least=1)] = 32
    replay_batch: Annotated[int, Option(LEARNER, "Images replayed with each batch.", least=0)] = 16
    delay: Annotated[float, Option(KNOWLEDGE, "Batches until the links of a new class are known; inf for never.")] = 1
    vacant: Annotated[float, Option(KNOWLEDGE, "Fraction of links that are missing.")] = 0.0
    noise: Annotated[float, Option(KNOWLEDGE, "Fraction of links that are wrong.")] = 0.0
    eval_every: Annotated[
        int | None,
        Option(OUTPUT, "Samples between evaluations; default: a twelfth of the stream, at most 1600.", least=1),
    ] = None
    decode: Annotated[
        Decode, Option(OUTPUT, "Accuracy to display: with levels treated as independent, or of consistent paths.")
    ] = "level"
    calibrate: Annotated[
        bool, Option(OUTPUT, "Predict each batch before it is learned, and calibrate the probabilities by it.")
    ] = False
    seed: Annotated[int, Option(STREAM, "Seed of the stream and of all random draws.", least=0)] = 0
    settings: Annotated[
        dict[str, Any], Option(LEARNER, "A setting of the method, `key=value`; may be repeated.", flag="--set")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("method", "dataset", "backbone"):
            object.__setattr__(self, name, spell(getattr(self, name)))
        if self.data is not None:
            object.__setattr__(self, "data", str(self.data))
        for name, (kind, option) in options().items():
            value = getattr(self, name)
            if option.least is not None and value is not None:
                check_least(name, value, option.least)
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
def options() -> dict[str, tuple[Any, Option]]:
    """The fields of `RunConfig`: name -> type and option."""
    hints = typing.get_type_hints(RunConfig, include_extras=True)
    return {name: typing.get_args(hint) for name, hint in hints.items()}
