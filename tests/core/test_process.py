from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

import dhocl

PROGRAM = """
import resource, sys, torch
if sys.argv[1] == "keep":
    from dhocl.core.process import keep_freed_memory
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)  # 48 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(20)))
"""

SIDE_BY_SIDE = """
import resource, torch
from dhocl.core.process import keep_freed_memory
from dhocl.nn.backbones import load, side_by_side
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


def measured(program: str, *how: str) -> int:
    """The number that a program prints in a process of its own."""
    told = subprocess.run([sys.executable, "-c", program, *how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_freed_memory_is_used_again_without_the_system() -> None:
    assert measured(PROGRAM, "keep") < 100 < measured(PROGRAM, "as usual")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_threads_that_work_side_by_side_use_it_again_too() -> None:
    assert measured(SIDE_BY_SIDE) < 5000  # of some 20,000 that a forward needs


def test_only_entry_points_change_the_process() -> None:
    """A library call leaves allocator, threads and environment as they are."""
    root = Path(dhocl.__file__).parent
    users = {str(p.relative_to(root)) for p in root.rglob("*.py") if "dhocl.core.process" in p.read_text()}
    changing = {str(p.relative_to(root)) for p in root.rglob("*.py") if "torch.backends" in p.read_text()}
    assert changing == {"core/process.py"}
    commands = {f"cli/{name}.py" for name in ("bench", "evaluate", "learn", "predict", "run", "suggest")}
    workers = {"bulk/on_ray.py", "experiment/sweep/cluster.py", "experiment/sweep/local.py"}
    returning = {"service/keeper.py"}  # gives memory back, which changes no setting
    assert users == commands | workers | returning | {"service/server.py", "service/on_ray.py"}


def test_a_call_sets_the_environment_before_the_function_is_imported() -> None:
    program = "from dhocl.core.process import call; call({'DHOCL_TEST': 'set'}, 'os:system', 'echo $DHOCL_TEST')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set\n"
    loaded = "import sys; import dhocl.core.process; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", "libraries read the environment when they are imported"


RETURNED = """
import torch
from dhocl.core.process import keep_freed_memory, return_freed_memory
def resident():
    return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) // 1024
keep_freed_memory()
class Node: pass
for _ in range(10):
    a, b = Node(), Node()
    a.other, b.other, a.held = b, a, torch.ones(10_000_000)
del a, b
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_kept_memory_can_be_returned() -> None:
    """400 MB in cycles that only the collector frees."""
    assert measured(RETURNED) > 300
