"""Settings of a method: a dataclass that checks its values."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from dhocl.core.errors import InputError


@dataclass(frozen=True)
class Settings:
    """Base of the settings of a method. Numbers are finite and not negative; those named in `positive` are not 0."""

    positive: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if not (math.isfinite(value) and (value > 0 or (value == 0 and field.name not in self.positive))):
                least = "above 0" if field.name in self.positive else "from 0"
                raise InputError(f"`settings` {field.name.rstrip('_')}={value}: expected a number {least}")
