"""What a method can be told, as a value that checks itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from dhocl.errors import InputError


@dataclass(frozen=True)
class Settings:
    """What a method can be told by --set key=value. Numbers are finite and not negative; some must not be 0."""

    positive: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if not (math.isfinite(value) and (value > 0 or (value == 0 and field.name not in self.positive))):
                least = "above 0" if field.name in self.positive else "from 0"
                raise InputError(f"--set {field.name.rstrip('_')}={value}: expected a number {least}")
