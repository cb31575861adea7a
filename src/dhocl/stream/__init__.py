"""The stream: a pure plan, and the loader that reads it."""

from dhocl.stream.loader import Stream
from dhocl.stream.plan import PlanConfig, given, plan

__all__ = ["PlanConfig", "Stream", "given", "plan"]
