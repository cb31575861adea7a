"""HALO's step against a slow one made by hand: every term, its weight, and what it reaches."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.checks import exam, feed, setup, stream
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.halo import HALO, HaloSettings, PrintedSettings
from dhocl.nn.augment import augment
from dhocl.nn.backbones import wrap
from dhocl.nn.heads.pairs import all_pairs
from dhocl.nn.heads.seeded import seeded
from dhocl.nn.learner import Batch
from tests.helpers.reference_replay import draws
from tests.helpers.trees import completed_by_hand

STEPS = 7  # of 8 images: both families have come, prototypes were cached twice, the buffer of 20 is full
SMALL = {"prototypes": 2, "prototype_size": 6, "cache_every": 3, "top_patches": 0.5}


class Step:
    """A learner before and after one more step, with the loss it took and what a hand-made loss needs."""

    def __init__(self, settings: HaloSettings) -> None:
        self.settings = settings
        learner = HALO(setup(), settings)
        *past, (x, labels) = stream(STEPS)
        self.rows: list[tuple[Tensor, list[int]]] = []  # frozen features and targets as they were when learned
        curator = None
        for images, names in past:
            curator = feed(learner, [(images, names)], curator)
            self._note(learner, images, curator.taxonomy, names)
        assert curator is not None
        batch, self.tree = Batch(x, curator.observe(labels)), curator.taxonomy
        self.twin = copy.deepcopy(learner)
        taken = []
        step = learner.net.step
        learner.net.step = lambda loss: (taken.append(loss), step(loss))  # type: ignore[assignment,func-returns-value]
        self.stats = learner.learn(batch, self.tree)
        self._note(learner, x, self.tree, labels)
        (self.loss,) = taken
        self.learner, self.batch = learner, batch

    def _note(self, learner: HALO, x: Tensor, tree: Taxonomy, labels: list) -> None:
        for feature, label in zip(learner.f0(x), labels, strict=True):
            self.rows.append((feature, completed_by_hand(tree, tree.id(label))))

    def ridge(self, phi: Tensor, level: int) -> Tensor:
        """Outputs for (n, d) of the regression on everything labelled at this level, solved at once."""
        rows = [(f, path[level]) for f, path in self.rows if len(path) > level and path[level] != -1]
        X, y = torch.stack([self.embed(f[None])[0] for f, _ in rows]).double(), torch.tensor([c for _, c in rows])
        G = X.t() @ X + self.settings.gamma * torch.eye(X.shape[1], dtype=torch.double)
        W = torch.linalg.solve(G, X.t() @ F.one_hot(y, self.tree.widths[level]).double())
        return (self.embed(phi).double() @ W).float()

    def embed(self, f: Tensor) -> Tensor:
        return f / f.norm(dim=1, keepdim=True) if self.settings.normalise else f

    def by_hand(self) -> dict[str, Tensor]:
        twin, tree, s = self.twin, self.tree, self.settings
        b = len(self.batch.y)
        replay = twin.memory.sample(twin.setup.replay_batch)
        x = torch.cat([self.batch.x, replay["x"]])
        y = torch.cat([self.batch.y, replay["y"]])
        targets = [completed_by_hand(tree, int(node)) for node in y]
        views = augment(x, twin.rng, flip=True)
        twin.net.f.train(s.batch_statistics)
        features, fmap = twin.net.f(views)
        twin.net.f.eval()
        z = [F.linear(features, *twin.net.heads.levels[level]) for level in (0, 1)]
        terms = {
            "linear": sum(self.ce(z[h][:b].log_softmax(1), targets[:b], h) for h in (0, 1)),
            "replay": sum(self.ce(z[h][b:].log_softmax(1), targets[b:], h) for h in (0, 1)) + self.half_js(z, b),
        }
        if s.heads == "both":
            mixed = [self.mixed(twin, h, z[h][b:], self.ridge(replay["phi"], h), fmap[b:]) for h in (0, 1)]
            terms["mixture"] = sum(self.ce(mixed[h].log(), targets[b:], h) for h in (0, 1))
        if s.hpr:
            n = b if s.printed else len(x)
            terms |= self.prototypes(fmap[:n], targets[:n])
        return terms

    def mixed(self, learner: HALO, h: int, z: Tensor, analytic: Tensor, fmap: Tensor) -> Tensor:
        """What is predicted at a level, from the logits of the linear head, the regression and the map."""
        s = self.settings
        if learner.predla:
            alpha, tau = learner.predla._logits[h].softmax(0), learner.predla._log_tau[h].exp()
            return alpha[0] * (z / tau[0]).softmax(1) + alpha[1] * (analytic / tau[1]).softmax(1)
        experts = [(z / s.linear_tau).softmax(1), (analytic * z.shape[1] ** 0.5 / s.analytic_tau).softmax(1)]
        if learner.prototypes and s.prototypes_predict:
            bank, rows = learner.prototypes._banks[h].parameter, []
            for patches in learner.prototypes.embed(fmap):
                best = [[F.cosine_similarity(patches, p[None]).amax() for p in own] for own in bank]
                rows.append(torch.stack([s.logit_scale * torch.stack(own).sum() for own in best]))
            experts.append((torch.stack(rows) / s.prototype_tau).softmax(1))
        return sum(experts) / len(experts)

    def ce(self, log_p: Tensor, targets: list[list[int]], h: int) -> Tensor:
        nll = -torch.stack([log_p[i, path[h]] for i, path in enumerate(targets) if path[h] != -1])
        return nll.mean() if self.settings.average == "level" else nll.sum() / len(targets)

    def half_js(self, z: list[Tensor], b: int) -> Tensor:
        """All classes are linked by now: the finer head's probabilities are summed over each family."""
        p, fine = z[0][b:].softmax(1), z[1][b:].softmax(1)
        parents = [self.tree.column(self.tree.parent(int(node))) for node in self.tree.nodes(1)]
        q = torch.stack([sum(fine[:, c] for c, up in enumerate(parents) if up == a) for a in range(p.shape[1])], 1)
        m = (p + q) / 2
        divergences = [(side * (side / m).log()).sum(1) for side in (p, q)]
        return 0.5 * (0.5 * divergences[0] + 0.5 * divergences[1]).mean()

    def prototypes(self, fmap: Tensor, targets: list[list[int]]) -> dict[str, Tensor]:
        twin, s = self.twin.prototypes, self.settings
        assert twin is not None
        patches = twin._adapter(fmap.flatten(2).transpose(1, 2))  # (n, P, k)
        banks = [twin._banks[h].parameter for h in (0, 1)]  # (C, J, k)
        classes = torch.zeros(())
        for h in (0, 1):
            costs = []
            for image, path in zip(patches, targets, strict=True):
                if path[h] == -1:
                    continue
                cosines = torch.stack([F.cosine_similarity(image, p[None]).amax() for p in banks[h].flatten(0, 1)])
                scores = cosines.view(len(banks[h]), -1)  # (C, J)
                if s.printed:
                    squares = (image[:, None, None] - banks[h]).square().sum(3).amin(0).amin(1)  # (C,)
                else:
                    squares = 2 - 2 * scores.amax(1)
                scale = 1 if s.printed else s.logit_scale
                others = torch.cat([squares[: path[h]], squares[path[h] + 1 :]])
                ce = -(scale * scores.sum(1)).log_softmax(0)[path[h]]
                costs.append(ce + s.cluster * squares[path[h]] - s.separation * others.amin())
            classes = classes + torch.stack(costs).mean()
        units = [F.normalize(bank, dim=2) for bank in banks]
        hinges, pairs = [], all_pairs(self.tree, siblings=s.printed)
        strangers = pairs.strangers(torch.arange(len(pairs.descendant)), twin._rng)
        width = len(banks[0])
        for a, d, other in zip(pairs.ancestor.tolist(), pairs.descendant.tolist(), strangers.tolist(), strict=True):
            own, strange = ((units[0][a] @ units[1][column - width].t()).amax() for column in (d, other))
            hinges.append((s.margin - own + strange).clamp_min(0))
        drifts, flat = [], F.normalize(patches, dim=2).flatten(0, 1)
        for h in (0, 1):
            for now, then in zip(units[h].flatten(0, 1), twin._cached[h], strict=False):
                top = (flat @ now).topk(round(s.top_patches * len(flat))).indices
                drifts.append((flat[top] @ now - flat[top] @ then).square().mean())
        total = torch.stack(hinges), torch.stack(drifts)
        alignment, drift = (terms.sum() if s.printed else terms.mean() for terms in total)
        return {"prototypes": classes, "alignment": s.lambda_ * alignment, "temporal": s.lambda_ * drift}


def named(learner: HALO) -> Iterator[tuple[str, Tensor | None]]:
    return ((name, p.grad) for name, p in learner.net.optimizer._named.items())


VARIANTS = {
    "default": HaloSettings(**SMALL),
    "averaged over samples": HaloSettings(average="sample", **SMALL),
    "two experts": HaloSettings(prototypes_predict=False, **SMALL),
    "an adapter": HaloSettings(adapter=True, **SMALL),
    "no prototypes": HaloSettings(hpr=False),
    "linear": HaloSettings(heads="linear", hpr=False),
    "the paper's mixing": HaloSettings(mixing="replay", delta=0.01, **SMALL),
    "printed": PrintedSettings(**SMALL),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_by_hand(variant: str) -> None:
    step = Step(VARIANTS[variant])
    terms = step.by_hand()
    assert {f"loss.{name}" for name in terms} == {name for name in step.stats if name.startswith("loss.")}
    for name, term in terms.items():
        assert step.stats[f"loss.{name}"] == pytest.approx(float(term.detach()), rel=2e-4, abs=1e-5), name
    loss = torch.stack(list(terms.values())).sum()
    torch.testing.assert_close(step.loss, loss, rtol=2e-4, atol=1e-5)
    loss.backward()
    expected = dict(named(step.twin))
    for name, gradient in named(step.learner):
        want = expected[name]
        if want is None:
            assert gradient is None or gradient.abs().max() == 0, name
        else:
            assert gradient is not None, name
            torch.testing.assert_close(gradient, want, rtol=2e-3, atol=2e-5 * max(1, want.abs().max()), msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_moves_and_the_batch_is_kept_after_the_step(variant: str) -> None:
    step = Step(VARIANTS[variant])
    before = dict(step.twin.net.optimizer._named)
    for name, p in step.learner.net.optimizer._named.items():
        assert not torch.equal(p, before[name]), name
    assert step.learner.memory.seen == step.twin.memory.seen + len(step.batch.y)


def test_temperatures_move_by_the_replayed_images_alone() -> None:
    step = Step(VARIANTS["the paper's mixing"])
    replay = step.twin.memory.sample(step.twin.setup.replay_batch)
    views = augment(torch.cat([step.batch.x, replay["x"]]), step.twin.rng, flip=True)
    logits = {h: z[len(step.batch.y) :].detach() for h, z in step.twin.net(views).logits.items()}
    assert step.twin.predla is not None
    assert step.learner.predla is not None
    step.twin.predla.match_entropies(logits, {h: step.ridge(replay["phi"], h) for h in (0, 1)})
    for h in (0, 1):
        torch.testing.assert_close(step.learner.predla.tau(h), step.twin.predla.tau(h), rtol=1e-3, atol=1e-4)
        assert not torch.equal(step.learner.predla.tau(h), torch.ones(2))


@pytest.mark.parametrize("variant", [name for name, settings in VARIANTS.items() if settings.heads == "both"])
def test_predictions_by_hand(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(VARIANTS[variant])
    x, _ = exam()
    learner = step.learner
    monkeypatch.setattr("dhocl.nn.heads.prototypes.AT_ONCE", 100)  # a few images at a time
    with torch.no_grad():
        features, fmap = learner.net.f(x)
        for h, p in learner.predict(x).items():
            z, analytic = F.linear(features, *learner.net.heads.levels[h]), step.ridge(learner.f0(x), h)
            torch.testing.assert_close(p, step.mixed(learner, h, z, analytic, fmap), rtol=1e-3, atol=1e-4)


def test_printed_prototypes_see_the_map_of_stride_8_where_there_is_one() -> None:
    given = setup()
    given.backbone.maps = {8: 64, 16: 64, 32: 64}
    HALO(given, PrintedSettings())
    assert given.backbone.map_stride == 8
    HALO(given, HaloSettings())
    assert given.backbone.map_stride == 32


@pytest.mark.parametrize("settings", [HaloSettings(), PrintedSettings()])
def test_batch_normalisation_follows_the_batch_as_printed_and_not_otherwise(settings: HaloSettings) -> None:
    conv, norm = seeded(nn.Conv2d(3, 8, 8, stride=8), draws()), nn.BatchNorm2d(8)
    learner = HALO(setup()._replace(backbone=wrap(nn.Sequential(conv, norm), [0] * 3, [1] * 3)), settings)
    conv = copy.deepcopy(conv)
    ((x, labels),) = stream(1)
    feed(learner, [(x, labels)])
    expected = torch.zeros(8)
    if settings.batch_statistics:
        expected += 0.1 * conv(augment(x, draws(), flip=True) / 255).mean((0, 2, 3))  # the momentum of torch
    torch.testing.assert_close(norm.running_mean, expected, rtol=1e-4, atol=1e-6)
    assert norm.running_mean.abs().max() > 1e-3 or not settings.batch_statistics
    assert not norm.training, "ready to predict"
