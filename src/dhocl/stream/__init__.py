"""The stream: a plan of which image comes when, and the loader that reads the images."""

from dhocl.stream.loader import Stream
from dhocl.stream.plan import Plan, PlanConfig, given, plan
from dhocl.stream.scenarios import FIXED, GROUPED

__all__ = ["FIXED", "GROUPED", "Plan", "PlanConfig", "Stream", "given", "plan"]
