from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from scipy.special import rel_entr, softmax
from torch import Tensor

from dhocl import checks
from dhocl.checks import feed, passes, setup, stream, true_tree
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.ccl_dc import CCLDC, CclDcSettings, chain_divergence, divergence
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.registry import method_settings
from dhocl.nn.augment import augment, rand_augment, resized_crop
from dhocl.nn.learner import Batch, Setup
from dhocl.nn.losses import multi_ce
from dhocl.nn.memory import Reservoir
from dhocl.nn.network import Network, Output
from tests.helpers.reference_others import arriving, assert_same_state, assert_same_steps, slow_multi_ce, twins, watched

TREE = true_tree()


def known(steps: int, seed: int = 0) -> list[Batch]:
    """Batches of a stream, with the whole tree known from the start."""
    return [Batch(x, torch.tensor([TREE.id(label) for label in labels])) for x, labels in stream(steps, seed)]


def learned(**settings: float) -> CCLDC:
    learner = CCLDC(setup(), CclDcSettings(**settings))
    feed(learner, stream(4))
    for net in (learner.net, learner.peer):
        net.grow(TREE)
    return learner


def logits(seed: int, n: int = 5) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {0: torch.randn(n, 2, generator=generator), 3: torch.randn(n, 4, generator=generator)}


def scipy_divergence(student: dict[int, Tensor], teacher: dict[int, Tensor]) -> float:
    levels = [
        16 * rel_entr(softmax(teacher[h].numpy() / 4, 1), softmax(student[h].numpy() / 4, 1)).sum(1).mean()
        for h in student
    ]
    return sum(levels) / len(levels)


def test_divergence_is_that_of_scipy_and_never_negative() -> None:
    for seed in range(5):
        student, teacher = logits(seed), logits(seed + 10)
        got = divergence(student, teacher, 4.0).item()
        assert got == pytest.approx(scipy_divergence(student, teacher), rel=1e-4)
        assert got > 0
        assert divergence(student, student, 4.0).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_each_view_learns_from_the_next_harder_one_and_the_hardest_from_itself(length: int) -> None:
    own, peer = ([[logits(who + 10 * i), logits(who + 10 * i + 5, 2)] for i in range(length + 1)] for who in (0, 1))

    def d(student: int, teacher: int) -> float:  # views of the chain count from 0, the plain one is not in it
        return sum(
            scipy_divergence(a, b) for a, b in zip(own[student + 1], peer[teacher + 1], strict=True)
        )  # stream and replay

    expected = {1: lambda: d(0, 0), 2: lambda: d(1, 1) + d(0, 1), 4: lambda: d(3, 3) + d(0, 1) + d(1, 2) + d(2, 3)}
    wrapped = [[[Output(z, z[0], z[0]) for z in view] for view in side] for side in (own, peer)]
    assert chain_divergence(*wrapped, 4.0).item() == pytest.approx(expected[length](), rel=1e-4)


def test_the_peer_is_not_taught_by_its_pupil() -> None:
    student, teacher = ({h: z.requires_grad_() for h, z in logits(seed).items()} for seed in (0, 1))
    divergence(student, teacher, 4.0).backward()
    assert all(z.grad is not None for z in student.values())
    assert all(z.grad is None for z in teacher.values())


def make_twins(learner: CCLDC) -> None:
    learner.peer.load_state_dict(copy.deepcopy(learner.net.state_dict()))


def test_identical_networks_on_identical_views(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learned()
    make_twins(learner)
    monkeypatch.setattr(learner, "chain", lambda x: [x] * 4)
    monkeypatch.setattr(learner, "augmented", lambda x: x)
    batch = known(1, seed=3)[0]
    plain = multi_ce(learner.net(batch.x).logits, TREE.complete(batch.y))
    for ce, kl in learner.losses([batch], TREE):
        torch.testing.assert_close(0.5 * ce, 2.5 * plain)
        assert abs(kl.item()) < 1e-5  # sums of float32, whose order is the processor's


def test_swapped_networks_have_swapped_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learned()
    monkeypatch.setattr(learner, "augmented", lambda x: x)
    batches, state = known(2, seed=3), learner.rng.state_dict()
    one, other = learner.losses(batches, TREE)
    learner.net, learner.peer = learner.peer, learner.net
    learner.rng.load_state_dict(state)
    swapped = [term.item() for terms in learner.losses(batches, TREE) for term in terms]
    assert swapped == pytest.approx([term.item() for term in (*other, *one)])
    assert one[0].item() != other[0].item()


def parameters(net: Network) -> list[Tensor]:
    return [p.detach().clone() for p in net.optimizer.parameters()]


def test_without_distillation_both_are_runs_of_replay_of_their_own() -> None:
    """Against a loop of plain replay over the same views, once for either network."""
    learner = CCLDC(setup(), CclDcSettings(distillation=0.0))
    batches = known(6)
    for batch in batches:
        learner.learn(batch, TREE)
    for place, trained in enumerate((learner.net, learner.peer)):
        source = CCLDC(setup(), CclDcSettings())  # for the first weights and the views, none of its learning
        net, rng = (source.net, source.peer)[place], source.rng
        memory = Reservoir(source.setup.buffer, rng)
        for batch in batches:
            net.grow(TREE)
            items = memory.sample(source.setup.replay_batch)
            parts = [batch, *([Batch(items["x"], items["y"])] if items else [])]
            chains = [source.chain(part.x) for part in parts]
            plain = [source.augmented(parts) for _ in range(2)][place]
            images = [*(part.x for part in plain), *(view for views in zip(*chains, strict=True) for view in views)]
            terms = [
                multi_ce(output.logits, TREE.complete(parts[i % len(parts)].y))
                for i, output in enumerate(net.each(images))
            ]
            net.step(0.5 * torch.stack(terms).sum())
            memory.insert(x=batch.x, y=batch.y)
        for got, want in zip(parameters(trained), parameters(net), strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("distillation", "coupled"), [(0.0, False), (2.0, True)])
def test_a_network_feels_its_peer_only_by_distillation(distillation: float, coupled: bool) -> None:
    plain, disturbed = (CCLDC(setup(), CclDcSettings(distillation=distillation)) for _ in range(2))
    with torch.no_grad():
        for p in disturbed.peer.f.parameters():
            p.mul_(1.5)
    for batch in known(3):
        plain.learn(batch, TREE)
        disturbed.learn(batch, TREE)
    same = all(torch.equal(a, b) for a, b in zip(parameters(plain.net), parameters(disturbed.net), strict=True))
    assert same != coupled


def test_heads_of_all_runs_and_their_peers_start_differently() -> None:
    starts = set()
    for seed in range(30):
        learner = CCLDC(setup(seed=seed), CclDcSettings())
        for net in (learner.net, learner.peer):
            net.grow(TREE)
            starts.add(tuple(net.heads.levels[1].weight[0].tolist()))
    assert len(starts) == 60, "two for each of 30 seeds"


def test_peers_share_values_of_the_backbone_and_nothing_else() -> None:
    learner = CCLDC(setup(), CclDcSettings())
    for a, b in zip(learner.net.f.parameters(), learner.peer.f.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()
    learner.learn(known(1)[0], TREE)
    assert learner.net.optimizer is not learner.peer.optimizer
    for level, head in learner.net.heads.levels.items():
        assert head.weight.shape == learner.peer.heads.levels[level].weight.shape
    fresh = CCLDC(setup(), CclDcSettings())
    for net in (fresh.net, fresh.peer):
        net.grow(TREE)
    for level, head in fresh.net.heads.levels.items():
        apart = (head.weight - fresh.peer.heads.levels[level].weight).abs().max()
        assert apart > 1e-3, "heads must start apart, or KL stays 0"
    moved = [(a - b).abs().max() for a, b in zip(parameters(learner.net), parameters(learner.peer), strict=True)]
    assert max(moved) > 0


def test_predictions_are_of_the_mean_logits() -> None:
    learner = learned()
    x, _ = checks.exam()
    own, peer = learner.net(x).logits, learner.peer(x).logits
    for level, p in learner.predict(x).items():
        torch.testing.assert_close(p, ((own[level] + peer[level]) / 2).softmax(1))


def test_learns_while_there_is_nothing_to_replay() -> None:
    learner = CCLDC(setup(buffer=0), CclDcSettings())
    before = parameters(learner.net)
    learner.learn(known(1)[0], TREE)
    assert any(not torch.equal(a, b) for a, b in zip(before, parameters(learner.net), strict=False))


@pytest.mark.parametrize(("views", "times"), [(4, 10), (2, 6), (1, 4)])
def test_cost_in_steps_of_replay(views: int, times: int) -> None:
    def units(make: Callable[[Setup], ER]) -> int:
        given = setup()
        feed(make(given), stream(3))
        return passes(given.backbone)

    ours = units(lambda given: CCLDC(given, CclDcSettings(views=views)))
    assert ours == times * units(lambda given: ER(given, ReplaySettings()))


def test_a_shorter_chain_is_the_beginning_of_the_whole() -> None:
    learner, batch = CCLDC(setup(), CclDcSettings()), known(1)[0]
    chain = learner.chain(batch.x)
    assert len(chain) == 4
    assert torch.equal(chain[0], batch.x)
    shorter = CCLDC(setup(), CclDcSettings(views=2)).chain(batch.x)
    assert len(shorter) == 2
    assert torch.equal(shorter[1], chain[1])


def test_a_loss_that_takes_several_copies_of_an_image_is_not_offered() -> None:
    with pytest.raises(InputError, match="loss=hcon: expected one of multi_ce, hxe, soft_ce, haf"):
        method_settings("ccl_dc", {"loss": "hcon"})


# -- a step recomputed -----------------------------------------------------------------------------------------


def slow_divergence(student: dict[int, Tensor], teacher: dict[int, Tensor]) -> Tensor:
    """16 KL(teacher at temperature 4 ‖ student at temperature 4), mean over levels and images, image by image."""
    total = torch.zeros(())
    for level, z in student.items():
        for own, other in zip(z, teacher[level].detach(), strict=True):
            p, q = F.softmax(other / 4, 0), F.softmax(own / 4, 0)
            total = total + 16 * (p * (p.log() - q.log())).sum() / len(z) / len(student)
    return total


def reference_step(twin: CCLDC, batch: Batch, tree: Taxonomy) -> dict[str, float]:
    twin.net.grow(tree)
    twin.peer.grow(tree)
    rng, batches = twin.rng, [batch]
    if twin.memory.size:
        slots = rng.choice(twin.memory.size, size=min(4, twin.memory.size), replace=False, shuffle=False)
        batches.append(Batch(twin.memory.columns["x"][slots], twin.memory.columns["y"][slots]))
    chains = []  # by batch
    for x in (each.x for each in batches):
        crop = resized_crop(x, rng, True, (0.6, 1.0))
        chains.append([x, crop, harder := rand_augment(crop, rng), rand_augment(harder, rng)])
    # net -> batch -> view -> logits; view 0 is the plain one, 1 to 4 are the chain
    seen = [
        [
            [net(view).logits for view in [plain, *chain]]
            for plain, chain in zip([augment(each.x, rng, True) for each in batches], chains, strict=True)
        ]
        for net in (twin.net, twin.peer)
    ]
    terms = []
    for own, peer in (seen, seen[::-1]):
        ce, kl = torch.zeros(()), torch.zeros(())
        for views, other, each in zip(own, peer, batches, strict=True):
            for view in views:
                ce = ce + slow_multi_ce(view, each.y, tree)
            for student, teacher in ((1, 2), (2, 3), (3, 4), (4, 4)):
                kl = kl + slow_divergence(views[student], other[teacher])
        terms.append((ce, kl))
    for net, (ce, kl) in zip((twin.net, twin.peer), terms, strict=True):
        net.step(0.5 * ce + 2 * kl)
    twin.memory.insert(x=batch.x, y=batch.y)
    return {
        "loss.ce": (terms[0][0] + terms[1][0]).item() / 2,
        "loss.distillation": (terms[0][1] + terms[1][1]).item() / 2,
    }


def test_a_step_is_half_the_cross_entropy_of_five_views_and_twice_the_chain_for_either_network() -> None:
    def make() -> CCLDC:
        return CCLDC(setup(buffer=12), CclDcSettings())

    learner = make()
    steps = watched(learner.net), watched(learner.peer)
    for batch, tree in arriving(4):
        twin = twins(make, learner)
        wanted = watched(twin.net), watched(twin.peer)
        stats = reference_step(twin, batch, tree)
        assert learner.learn(batch, tree) == pytest.approx(stats, rel=1e-3)
        for taken, other in zip(steps, wanted, strict=True):
            assert_same_steps(taken[-1:], other)
        assert_same_state(learner.state_dict(), twin.state_dict())
    assert len(steps[0]) == len(steps[1]) == 4, "one step a batch for either network"
    assert stats["loss.distillation"] > 0.01, "otherwise missing distillation would not be seen"
