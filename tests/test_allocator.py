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


def faults(how: str) -> int:
    """Page faults of a large allocation, after others like it were freed."""
    told = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again_without_the_system() -> None:
    assert faults("keep") < 100 < faults("as usual")
