"""Everything that decides a run, as one value that can be stored and run again."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from dhocl.errors import InputError
from dhocl.methods import METHODS, Method
from dhocl.settings import Settings

Scenario = Literal["dhocl", "iblurry", "hle_single", "hle_dual", "hle_multi", "iirc"]


@dataclass(frozen=True)
class RunConfig:
    method: str = "halo"
    dataset: str = "glyphs"
    data: str | None = None
    backbone: str = "efficientnet_lite0"
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
    eval_every: int | None = None  # stream samples; None: 12 times a run, and at least every 1,600
    decode: Literal["level", "path"] = "level"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # of the method, those that differ from its defaults

    def __post_init__(self) -> None:
        find_method(self.method)
        for name in ("samples", "test_samples", "image_size", "eval_every", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} {value}: at least 1")
        for name in ("buffer", "replay_batch", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: not negative")
        if not (self.delay >= 0 and (math.isinf(self.delay) or self.delay == int(self.delay))):
            raise InputError(f"--delay {self.delay}: a whole number of batches from 0, or inf")
        if not (self.vacant >= 0 and self.noise >= 0 and self.vacant + self.noise <= 1):
            raise InputError(f"--vacant {self.vacant} --noise {self.noise}: shares that sum to at most 1")
        if self.scenario not in typing.get_args(Scenario):
            raise InputError(f"--scenario {self.scenario}: one of {', '.join(typing.get_args(Scenario))}")
        if self.decode not in ("level", "path"):
            raise InputError(f"--decode {self.decode}: level or path")

    def evaluations(self, samples: int) -> int:
        """Stream samples between evaluations."""
        return self.eval_every or min(1600, math.ceil(samples / 12))

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        return fields | {"delay": "inf" if math.isinf(self.delay) else self.delay}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunConfig:
        try:
            return cls(**fields | {"delay": float(fields["delay"])})
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(
                f"a stored configuration can not be read ({error}): was it made by another version?"
            ) from None


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise InputError(f"there is no method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]


def method_settings(method: str, given: dict[str, Any]) -> Settings:
    """The method's settings with these changed; text is read as the type that the setting has.

    >>> method_settings("halo", {"hpr": "false", "lambda": "0.5"}).lambda_
    0.5
    """
    settings = find_method(method).settings
    kinds = typing.get_type_hints(settings)
    names = {key.rstrip("_"): key for key in kinds}  # `lambda` is a word of Python's
    unknown = given.keys() - names.keys()
    if unknown:
        raise InputError(f"{method} has no setting {min(unknown)!r}: choose of {', '.join(sorted(names))}")
    return settings(**{names[key]: _read(key, value, kinds[names[key]]) for key, value in given.items()})


def _read(key: str, value: Any, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if typing.get_origin(kind) is Literal:
            return {str(choice): choice for choice in typing.get_args(kind)}[str(value)]
        if isinstance(kind, types.UnionType):  # X | None
            return None if str(value).lower() == "none" else _read(key, value, typing.get_args(kind)[0])
        return kind(value)
    except (ValueError, KeyError):
        choices = ("true", "false") if kind is bool else typing.get_args(kind)
        hint = f"one of {', '.join(map(str, choices))}" if choices else f"a value of type {kind.__name__}"
        raise InputError(f"--set {key}={value}: expected {hint}") from None
