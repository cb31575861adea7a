from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
if sys.argv[1] == "keep":
    from dhocl.allocator import keep_freed_memory
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)  # 48 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(20)))
"""

SIDE_BY_SIDE = """
import resource, torch
from dhocl.allocator import keep_freed_memory
from dhocl.backbones import load, side_by_side
keep_freed_memory()
torch.set_num_threads(2)
backbone, pixels = load("efficientnet_lite0"), torch.zeros((256, 3, 64, 64), dtype=torch.uint8)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    backbone(pixels)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
with torch.no_grad(), backbone.resting(), side_by_side():
    print(sorted(faults() for _ in range(15))[7])
"""


def faults(program: str, *how: str) -> int:
    """Page faults of what needs much memory, after the same was done before."""
    told = subprocess.run([sys.executable, "-c", program, *how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again_without_the_system() -> None:
    assert faults(PROGRAM, "keep") < 100 < faults(PROGRAM, "as usual")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_threads_that_work_side_by_side_use_it_again_too() -> None:
    assert faults(SIDE_BY_SIDE) < 5000  # of some 20,000 that a forward needs
