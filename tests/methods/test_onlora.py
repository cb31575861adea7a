"""onlora: where its low-rank changes sit, what a merge leaves, which images are hard, and when a loss is at rest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dhocl import checks
from dhocl.checks import feed, passes, setup, stream
from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.onlora import Adapters, Hardest, OnLoRA, OnLoraSettings, Plateau, places, relative_losses
from dhocl.nn import backbones
from dhocl.nn.backbones import Backbone, wrap
from dhocl.nn.backbones.efficientnet import MBConv
from dhocl.nn.backbones.layers import ConvNorm, SameConv
from dhocl.nn.memory import Reservoir
from tests.helpers.small_onlora import EAGER, TREE, known, on, trained


def mobile() -> Backbone:
    """A small network of the blocks that EfficientNet is made of."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(ConvNorm(3, 8, 3, stride=4), MBConv(8, 12, 3, 2, 4), MBConv(12, 12, 3, 1, 4))
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 2.0)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
        return wrap(net)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vit")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = transformers.ViTConfig(
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=32,
            patch_size=8,
            initializer_range=0.5,
        )
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    return f"hub:{folder}"


@pytest.fixture(params=["tiny", "mobile", "vit"])
def make_backbone(request: pytest.FixtureRequest) -> Callable[[], Backbone]:
    if request.param == "mobile":
        return mobile
    name = "tiny" if request.param == "tiny" else request.getfixturevalue("vit")
    return lambda: backbones.load(name)


# -- where it sits ---------------------------------------------------------------------------------------------


def test_attention_is_adapted_at_queries_and_values(vit: str) -> None:
    f = backbones.load(vit)
    names = {module: name for name, module in f.named_modules()}
    found = [names[module] for module in places(f)]
    assert len(found) == 4
    assert {name.split(".")[-1] for name in found} <= {"query", "value", "q_proj", "v_proj"}


def test_convolutional_networks_are_adapted_at_their_1x1_convolutions() -> None:
    assert [m.kernel_size for m in places(mobile())] == [(1, 1)] * 4
    assert all(isinstance(m, SameConv) for m in places(mobile()))
    tiny = places(backbones.load("tiny"))
    assert [m.kernel_size for m in tiny] == [(5, 5), (3, 3), (3, 3)], "it has no others"


def test_a_backbone_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match="no attention and no convolution"):
        OnLoRA(on(wrap(nn.AvgPool2d(4))), OnLoraSettings())


# -- low-rank changes ------------------------------------------------------------------------------------------


def test_at_first_the_features_are_those_of_the_frozen_network(make_backbone: Callable[[], Backbone]) -> None:
    x, _ = checks.exam()
    plain, learner = make_backbone(), OnLoRA(on(make_backbone()), OnLoraSettings())
    for got, want in zip(learner.net.f(x), plain(x), strict=True):
        assert torch.equal(got, want)


def test_training_moves_only_the_low_rank_changes(make_backbone: Callable[[], Backbone]) -> None:
    x, _ = checks.exam()
    plain, learner = make_backbone(), trained(make_backbone(), plateau_mean=0.0)
    own = {
        name.replace("parametrizations.weight.original", "weight"): p for name, p in learner.net.f.named_parameters()
    }
    assert all(torch.equal(own[name], p) for name, p in plain.named_parameters())
    assert all(p.abs().max() > 0 for p in learner.adapters.parameters())
    changed = learner.net.f(x)[0]
    assert not torch.allclose(changed, plain(x)[0], atol=1e-4)
    with torch.no_grad():  # the same by hand: W + BA in every place
        for host, adapted in zip(places(plain), learner.adapters._hosts, strict=True):
            low = adapted.parametrizations.weight[0]
            host.weight += torch.einsum("or,ri->oi", low.B, low.A).reshape(host.weight.shape)
    torch.testing.assert_close(plain(x)[0], changed, atol=1e-4, rtol=1e-4)


def test_a_merge_leaves_the_function_and_begins_anew(make_backbone: Callable[[], Backbone]) -> None:
    learner = trained(make_backbone(), plateau_mean=0.0)
    x, _ = checks.exam()
    before, old = learner.predict(x), [p.detach().clone() for p in learner.adapters.parameters()]
    learner.consolidate([])
    for level, p in learner.predict(x).items():
        assert torch.equal(p, before[level])
    new = learner.adapters.parameters()
    for a, b, old_a in zip(new[::2], new[1::2], old[::2], strict=True):
        assert b.abs().max() == 0
        assert a.abs().max() > 0
        assert not torch.equal(a, old_a)
    loss = learner.loss(known(1, seed=3), TREE)
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(loss, new[1::2])), "B must be able to leave zero"


def test_merges_add_up_exactly() -> None:
    """The sum of the products, which the product of the sums is not."""
    conv = SameConv(6, 5, 1, bias=False)
    first = conv.weight.detach().clone()
    adapters = Adapters(nn.Sequential(conv), 2, Rng(0, "test"))
    expected = first[:, :, 0, 0].double()
    for seed in range(3):
        a, b = adapters.parameters()
        nn.init.normal_(b, generator=torch.Generator().manual_seed(seed))
        expected = expected + b.detach().double() @ a.detach().double()
        adapters.merge([torch.zeros_like(a), torch.zeros_like(b)])
    torch.testing.assert_close(conv.weight[:, :, 0, 0].double(), expected, atol=1e-5, rtol=1e-5)


def test_moments_of_merged_changes_are_dropped_and_others_stay() -> None:
    learner = trained(backbones.load("tiny"), plateau_mean=0.0)
    before = copy.deepcopy(learner.net.optimizer.state_dict())
    assert any(name.startswith("f.") for name in before)
    learner.consolidate([])
    after = learner.net.optimizer.state_dict()
    assert after.keys() == {name for name in before if not name.startswith("f.")}
    assert all(torch.equal(after[name][key], before[name][key]) for name in after for key in after[name])


# -- hard images and plateaus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, 1, 4])
def test_the_hard_buffer_is_the_brute_force_top(capacity: int) -> None:
    rng = np.random.default_rng(0)
    memory, seen = Hardest(capacity, rng), {}
    for step in range(12):
        if memory.size and step % 3 == 0:  # replayed ones have new losses
            slots = np.arange(memory.size)
            new = rng.random(memory.size).astype(np.float32)
            held = memory.read(slots)["y"].tolist()
            memory.columns["loss"][: memory.size] = torch.from_numpy(new)
            seen = {name: loss for name, loss in seen.items() if name in held} | dict(
                zip(held, new.tolist(), strict=True)
            )
        names, losses = torch.arange(10 * step, 10 * step + step % 4), torch.from_numpy(rng.random(step % 4)).float()
        kept = set(memory.read(np.arange(memory.size))["y"].tolist()) if memory.size else set()
        memory.insert(y=names, loss=losses)
        seen = {name: loss for name, loss in seen.items() if name in kept} | dict(
            zip(names.tolist(), losses.tolist(), strict=True)
        )
        top = sorted(seen, key=lambda name: -seen[name])[:capacity]
        now = memory.read(np.arange(memory.size)) if memory.size else {"y": torch.empty(0), "loss": torch.empty(0)}
        assert set(now["y"].tolist()) == set(top)
        assert {name: seen[name] for name in top} == dict(zip(now["y"].tolist(), now["loss"].tolist(), strict=True))


def test_a_learner_that_stands_still_keeps_the_hardest_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = OnLoRA(setup(), OnLoraSettings(lr_backbone=0.0, lr_heads=0.0, memory="hard"))
    monkeypatch.setattr(learner, "augmented", lambda batches: batches)
    batches = known(6)
    for batch in batches:
        if learner.memory.size:
            learner.memory.columns["loss"].zero_()  # stale ones must not count: each replay gives them anew
        learner.learn(batch, TREE)
    x, y = torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])
    p = learner.predict(x)
    losses = []
    for i, node in enumerate(y.tolist()):
        path = [(TREE.labels[n].level, TREE.column(n)) for n in TREE.lineage(node)]
        losses.append(np.mean([-math.log(p[h][i, c]) / math.log(p[h].shape[1]) for h, c in path]))
    top = np.argsort(losses)[-4:]
    held = learner.memory.read(np.arange(4))
    assert sorted(held["loss"].tolist()) == pytest.approx(sorted(np.array(losses)[top]), rel=1e-4)
    wanted = {x[i].numpy().tobytes() for i in top}
    assert {image.numpy().tobytes() for image in held["x"]} == wanted


def test_a_guess_costs_1_at_any_level_and_width() -> None:
    logits = {0: torch.zeros(3, 2), 1: torch.zeros(3, 100), 4: torch.zeros(3, 1)}
    targets = torch.tensor([[1, 57, 0], [-1, 3, 0], [0, -1, -1]])
    expected = torch.tensor([[1, 1, 0], [torch.nan, 1, 0], [1, torch.nan, torch.nan]])
    torch.testing.assert_close(relative_losses(logits, targets), expected, equal_nan=True)


def plateaus(losses: list[float]) -> list[int]:
    """The places at which one is found, by a detector that is stored and loaded at each of them."""
    settings = OnLoraSettings(window=3, plateau_mean=0.5, plateau_variance=0.01)
    plateau, found = Plateau(settings), []
    for place, loss in enumerate(losses):
        state, plateau = plateau.state_dict(), Plateau(settings)
        plateau.load_state_dict(state)
        if plateau.reached(loss):
            found.append(place)
    return found


def test_plateaus_need_a_full_quiet_window_and_a_peak_in_between() -> None:
    assert plateaus([0.2] * 9) == [2], "full at the third; no peak ever after"
    assert plateaus([0.2, 0.2, 0.2, 0.1, 0.3, 0.9, 0.8, 0.45, 0.45, 0.44, 0.43]) == [2, 9], (
        "peak, then noise, then rest"
    )
    assert plateaus([0.0, 0.4] * 8) == [], "low, but noisy"
    assert plateaus([0.6] * 20) == [], "quiet, but high"
    assert plateaus([0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1]) == [2], "a rise within a standard deviation is no peak"


# -- the whole -------------------------------------------------------------------------------------------------


def test_keeps_the_buffer_that_every_method_has_and_costs_what_replay_costs() -> None:
    given, plain = setup(), setup()
    learner = OnLoRA(given, OnLoraSettings(plateau_mean=0.0))
    feed(learner, stream(3))
    assert isinstance(learner.memory, Reservoir)
    assert learner.memory.capacity == given.buffer == 20
    feed(ER(plain, ReplaySettings()), stream(3))
    assert passes(given.backbone) == passes(plain.backbone) == 3 * (8 + 12 + 12)


def test_all_hard_images_are_replayed_and_nothing_else() -> None:
    given = setup(replay_batch=2)
    learner = OnLoRA(given, OnLoraSettings(plateau_mean=0.0, memory="hard", hard=3))
    feed(learner, stream(3))
    assert passes(given.backbone) == 3 * (8 + 11 + 11)
    assert isinstance(learner.memory, Hardest)
    assert learner.memory.capacity == 3


@pytest.mark.parametrize("settings", [{}, EAGER], ids=["default", "eager"])
def test_resumes_from_a_file(make_backbone: Callable[[], Backbone], settings: dict[str, Any], tmp_path: Path) -> None:
    learner = trained(make_backbone(), **settings)
    again = OnLoRA(on(make_backbone()), OnLoraSettings(lr_backbone=1e-2, **settings))
    again.load_state_dict(checkpoint.load(checkpoint.save(tmp_path, learner.state_dict())))
    x, _ = checks.exam()
    for batch in known(4, seed=5):
        assert learner.learn(batch, TREE) == again.learn(batch, TREE)
    assert learner.adapters.merges == again.adapters.merges
    for level, p in learner.predict(x).items():
        assert torch.equal(p, again.predict(x)[level])
