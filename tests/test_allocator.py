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
    torch.ones(25_000_000)  # 100 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def second_time(how: str) -> int:
    """Page faults of a large allocation, after one like it was freed."""
    told = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again_without_the_system() -> None:
    assert second_time("keep") < 100 < second_time("as usual")
