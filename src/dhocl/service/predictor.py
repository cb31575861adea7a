"""What the routes that read and predict need: a service that learns, or a replica that follows one."""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import BaseModel

from dhocl.service.bodies import Limits
from dhocl.service.live import Live
from dhocl.service.measures import Measures
from dhocl.service.served import Snapshot


class Predictor(Protocol):
    """A model that is served. Its ranks and the size of its images never change."""

    limits: Limits
    live: Live
    measures: Measures
    ranks: list[str]
    image_size: int

    @property
    def learns(self) -> bool:
        """Whether it takes writes."""

    @property
    def metrics_model(self) -> type[BaseModel]:
        """Of what `metrics` returns."""

    @property
    def health_model(self) -> type[BaseModel]: ...

    @property
    def snapshot(self) -> Snapshot:
        """The newest one."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def metrics(self) -> dict[str, Any]: ...

    def health(self) -> dict[str, Any]:
        """With a `status` that is "failed" if it can not do its work."""

    def about(self) -> dict[str, Any]:
        """Fields of the line that is logged at the start."""
