"""Rounding errors of the recursive analytic heads in float32, against ridge regression in float64.

    python benchmarks/recursion.py [--updates 10000]

An update has 32 features of unit length. Their spectrum falls as 1/k, so most directions have little variance. Printed
is |W - W64| / |W64| after 100, 1,000 and 10,000 updates. Ten minutes on two cores.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from dhocl.methods.acil import AnalyticSettings
from dhocl.nn.heads.analytic import AnalyticHead

BATCH, CLASSES = 32, 100
CASES = [(256, 0.1), (256, 1e-3), (256, 1e-5), (1280, AnalyticSettings().gamma)]  # features, γ


def errors(dim: int, gamma: float, at: list[int]) -> dict[int, float]:
    """Relative errors after these numbers of updates."""
    rng, spectrum = torch.Generator().manual_seed(0), torch.arange(1, dim + 1) ** -1.0
    head, found = AnalyticHead(dim, gamma), {}
    head.grow(CLASSES)
    G, M = gamma * torch.eye(dim, dtype=torch.double), torch.zeros(CLASSES, dim, dtype=torch.double)
    for update in range(1, max(at) + 1):
        phi = F.normalize(torch.randn(BATCH, dim, generator=rng) * spectrum)
        columns = torch.randint(CLASSES, (BATCH,), generator=rng)
        head.learn(phi, columns)
        G += phi.double().t() @ phi.double()
        M += F.one_hot(columns, CLASSES).double().t() @ phi.double()
        if update in at:
            found[update] = error(head.W, torch.linalg.solve(G, M, left=False))
    return found


def error(W: Tensor, exact: Tensor) -> float:
    return float((W - exact).norm() / exact.norm())


def main(updates: Annotated[int, typer.Option(help="The most updates.")] = 10_000) -> None:
    at = [n for n in (100, 1000, 10_000) if n <= updates]
    print(f"| features | γ | {' | '.join(f'{n:,} updates' for n in at)} |\n|{'---:|' * (2 + len(at))}")
    for dim, gamma in CASES:
        found = errors(dim, gamma, at)
        print(f"| {dim} | {gamma:g} | {' | '.join(f'{found[n]:.0e}' for n in at)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
