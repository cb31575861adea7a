"""The stream: a pure plan, and the loader that reads it."""

from dhocl.stream.loader import Stream
from dhocl.stream.plan import PlanConfig, digest, given, plan

__all__ = ["PlanConfig", "Stream", "digest", "given", "plan"]
