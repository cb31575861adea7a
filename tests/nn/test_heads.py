from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.heads.analytic import AnalyticHead, AnalyticHeads, rls_step
from dhocl.nn.heads.linear import LinearHeads
from dhocl.nn.optim import Optimizer


def ridge(phi: torch.Tensor, Y: torch.Tensor, gamma: float) -> torch.Tensor:
    """(C, D) by scikit-learn, in float64."""
    model = Ridge(alpha=gamma, fit_intercept=False, solver="cholesky").fit(phi.double().numpy(), Y.double().numpy())
    return torch.from_numpy(model.coef_).reshape(Y.shape[1], phi.shape[1])


@settings(deadline=None)
@given(st.integers(0, 99), st.floats(0.1, 10), st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_recursive_equals_batch_ridge(seed: int, gamma: float, batches: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    n, d, c = sum(batches), 16, 5
    phi = torch.randn(n, d, generator=generator, dtype=torch.double)
    Y = F.one_hot(torch.randint(c, (n,), generator=generator), c).double()
    R, W = torch.eye(d, dtype=torch.double) / gamma, torch.zeros(c, d, dtype=torch.double)
    for part, target in zip(phi.split(batches), Y.split(batches), strict=True):
        rls_step(R, W, part, target)
    torch.testing.assert_close(W, ridge(phi, Y, gamma), rtol=0, atol=1e-8)
    torch.testing.assert_close(R, (phi.t() @ phi + gamma * torch.eye(d, dtype=torch.double)).inverse())


def test_recursive_equals_batch_ridge_in_float32_after_200_batches() -> None:
    generator = torch.Generator().manual_seed(0)
    phi = F.normalize(torch.randn(200 * 32, 128, generator=generator))
    columns = torch.randint(10, (len(phi),), generator=generator)
    head = AnalyticHead(128, gamma=1.0)
    head.grow(10)
    for part, target in zip(phi.split(32), columns.split(32), strict=True):
        head.learn(part, target)
    expected = ridge(phi, F.one_hot(columns, 10), 1.0).float()
    torch.testing.assert_close(head.W, expected, rtol=0, atol=1e-4)


def test_the_error_in_float32_does_not_grow_over_10000_updates() -> None:
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(48, 48, generator=generator) * torch.arange(1, 49) ** -0.7  # directions of very unequal size
    phi = F.normalize((torch.randn(40_000, 48, generator=generator) @ mix.t()).relu())
    columns = phi[:, :8].argmax(1)
    head = AnalyticHead(48, gamma=0.01)
    head.grow(8)
    errors = {}
    for step, (part, target) in enumerate(zip(phi.split(4), columns.split(4), strict=True), 1):
        head.learn(part, target)
        if step in (100, 10_000):
            expected = ridge(phi[: 4 * step], F.one_hot(columns[: 4 * step], 8), 0.01)
            errors[step] = float((head.W - expected).norm() / expected.norm())
    assert errors[10_000] < 1e-4
    assert errors[10_000] < 2 * errors[100]


def test_a_ridge_too_small_for_float32_is_told_of() -> None:
    head = AnalyticHead(8, gamma=1e-12)
    head.grow(2)
    phi = F.normalize(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)) + 5)
    with pytest.raises(InputError, match="raise `settings` gamma"):
        head.learn(phi.repeat(50, 1), torch.tensor([0, 1]).repeat(100))


def test_a_class_that_comes_late_is_as_if_known_from_the_start() -> None:
    generator = torch.Generator().manual_seed(1)
    phi = torch.randn(60, 12, generator=generator)
    columns = torch.arange(60) // 5  # 12 classes, one after the other
    late, early = AnalyticHead(12, 0.5), AnalyticHead(12, 0.5)
    early.grow(12)
    for part, target in zip(phi.split(5), columns.split(5), strict=True):
        late.grow(int(target.max()) + 1)
        late.learn(part, target)
        early.learn(part, target)
    torch.testing.assert_close(late.W, early.W)


def test_rows_without_a_label_teach_an_analytic_head_nothing() -> None:
    generator = torch.Generator().manual_seed(2)
    phi = torch.randn(20, 6, generator=generator)
    columns = torch.randint(-1, 3, (20,), generator=generator)
    mixed, only = AnalyticHead(6, 1.0), AnalyticHead(6, 1.0)
    for head in (mixed, only):
        head.grow(3)
    mixed.learn(phi, columns)
    only.learn(phi[columns >= 0], columns[columns >= 0])
    torch.testing.assert_close(mixed.W, only.W)
    before = mixed.W.clone()
    mixed.learn(phi, torch.full((20,), -1))
    assert torch.equal(mixed.W, before)


def test_expansion_is_seeded_and_of_the_asked_width() -> None:
    tree = Taxonomy()
    tree.add(Label("a", 0))
    heads = [AnalyticHeads(8, 1.0, 32, True, Rng(seed, "expansion")) for seed in (0, 0, 1)]
    x = torch.randn(4, 8)
    phi = [head.embed(x) for head in heads]
    assert phi[0].shape == (4, 32)
    assert (phi[0] >= 0).all()
    assert torch.equal(phi[0], phi[1])
    assert not torch.equal(phi[0], phi[2])


def test_linear_heads_follow_the_taxonomy() -> None:
    optimizer, tree = Optimizer(0.0), Taxonomy()
    heads = LinearHeads(4, optimizer, 0.1, Rng(0, "heads"))
    tree.add(Label("b", 1))
    heads.grow(tree)
    x = torch.randn(3, 4)
    old = heads(x)[1]
    tree.add(Label("a", 0))
    for i in range(20):
        tree.add(Label(f"b{i}", 1))
    heads.grow(tree)
    logits = heads(x)
    assert {level: z.shape for level, z in logits.items()} == {0: (3, 1), 1: (3, 21)}
    assert list(logits) == [0, 1]
    torch.testing.assert_close(logits[1][:, :1], old)


def test_new_linear_rows_are_uniform_and_as_large_as_those_of_pytorch() -> None:
    tree = Taxonomy()
    for i in range(500):
        tree.add(Label(str(i), 0))
    heads = LinearHeads(16, Optimizer(0.0), 0.1, Rng(0, "heads"))
    heads.grow(tree)
    weight, bias = (values.detach() for values in heads.levels[0])
    assert (weight.shape, bias.shape) == ((500, 16), (500,))
    for values in (weight, bias, weight[:, 3]):
        assert values.abs().max() <= 0.25
        assert values.std().item() == pytest.approx(0.25 / 3**0.5, rel=0.1)
        assert abs(values.mean()) < 0.025
    columns = torch.cat([weight, bias[:, None]], 1).t()
    assert len(columns.unique(dim=0)) == 17, "each has values of its own"


def test_linear_heads_without_a_new_class_keep_their_parameters() -> None:
    tree = Taxonomy()
    tree.add(Label("a", 0))
    heads = LinearHeads(4, Optimizer(0.0), 0.1, Rng(0, "heads"))
    heads.grow(tree)
    before = heads.levels[0]
    heads.grow(tree)
    assert heads.levels[0].weight is before.weight
    assert heads.levels[0].bias is before.bias


def test_linear_heads_are_what_their_state_says() -> None:
    tree = Taxonomy()
    for level in (0, 0, 2):
        tree.add(Label(f"{len(tree)}", level))
    first, other = (LinearHeads(4, Optimizer(0.0), 0.1, Rng(seed, "heads")) for seed in (0, 1))
    first.grow(tree)
    other.load_state_dict(first.state_dict())
    x = torch.randn(3, 4)
    assert list(other(x)) == [0, 2]
    for level, z in first(x).items():
        assert torch.equal(other(x)[level], z)
    assert not any(rows["rows"].requires_grad for state in first.state_dict().values() for rows in state.values())


def test_an_analytic_head_can_gain_many_classes_at_once() -> None:
    head = AnalyticHead(4, 1.0)
    head.grow(3)
    head.learn(torch.eye(3, 4), torch.arange(3))
    before = head.W.clone()
    head.grow(100)
    assert head.W.shape == (100, 4)
    assert torch.equal(head.W[:3], before)
    assert head.W[3:].abs().sum() == 0


@pytest.mark.parametrize("exposed", [False, True])
def test_analytic_heads_learn_on_from_their_state(exposed: bool) -> None:
    tree = Taxonomy()
    for name in "abcd":
        tree.add(Label(name, 0))
    first, other = (AnalyticHeads(6, 1.0, 0, True, Rng(0, "expansion"), exposed_labels=exposed) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    phi, targets = torch.randn(2, 8, 6, generator=generator), torch.arange(8)[:, None] % 4
    first.grow(tree)
    first.learn(phi[0], targets, [0])
    other.load_state_dict(first.state_dict())
    for heads in (first, other):
        heads.learn(phi[1], targets, [0])
    assert torch.equal(first(phi[1])[0], other(phi[1])[0])
