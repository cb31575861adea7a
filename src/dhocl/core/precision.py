"""Precision of a network. This module is imported without PyTorch, by the command line."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "bfloat16"]  # of the convolutions and products inside of a network
