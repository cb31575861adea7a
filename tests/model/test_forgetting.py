"""Forget and relabel: compared with the sums of the samples that are left, and with a model that never saw them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from dhocl import InputError, Label, Model, ModelConfig
from dhocl.checks import exam, stream, true_tree
from dhocl.core import checkpoint
from dhocl.core.settings import Settings
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods import METHODS
from dhocl.methods.amber import Amber
from dhocl.model import Revision
from dhocl.nn import ledger
from dhocl.nn.heads.ridge import Statistics
from dhocl.nn.learner import Batch, Learner, Setup, Stateful
from tests.helpers.states import values

LEVELS = ("kind", "species")
SUMS = {
    "amber": {"completion": "never"},
    "ncm": {},
    "slda": {},
    "ranpac": {"expansion": 60},
    "acil": {},
    "acil, balanced": {"stages": 0.5, "balance": 0.5},
    "gacil": {"expansion": 60},
}


def model(method: str, tree: Taxonomy | None = None, **options: Any) -> Model:
    given = {"image_size": 32, "backbone": "tiny", "buffer": 20, "replay_batch": 4, "calibrate": False}
    return Model(ModelConfig(LEVELS, method=method, **given | options), tree=tree or true_tree())


def numbers(state: Any, name: str = "") -> dict[str, Tensor]:
    """All tensors of floats in a state, by name."""
    if isinstance(state, Tensor):
        return {name: state.double()} if state.is_floating_point() else {}
    parts = state.items() if isinstance(state, dict) else ()
    return {key: value for part, inner in parts for key, value in numbers(inner, f"{name}/{part}").items()}


def difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    assert a.keys() == b.keys()
    return max((float((a[name] - b[name]).abs().max()) for name in a if a[name].numel()), default=0.0)


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_those_of_a_model_that_never_saw_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other sample of the second and the last batch is taken back. Nothing is fitted in between."""
    monkeypatch.setattr(Amber, "_fit", lambda *_: None)
    chosen = {"settings": SUMS[name]}
    seen, unseen = model(name.partition(",")[0], **chosen), model(name.partition(",")[0], **chosen)
    batches = stream(6)
    for step, (x, labels) in enumerate(batches):
        seen.observe(x, labels)
        rest = slice(1, None, 2) if step in (1, 5) else slice(None)
        unseen.observe(x[rest], labels[rest])
    for x, labels in (batches[5], batches[1]):
        seen.forget(x[::2], labels[::2])
    statistics = [numbers(each.learner.state_dict()) for each in (seen, unseen)]
    for state in statistics:  # the reservoir holds all samples, but in another order
        state.pop("/memory/columns/phi", None)
    found, (x, _) = difference(*statistics), exam()
    apart = [(seen.probabilities(x)[level] - p).abs().max().item() for level, p in unseen.probabilities(x).items()]
    print(f"{name}: statistics differ by at most {found:.1e}, probabilities by at most {max(apart):.1e}")
    assert found < 2e-4
    assert max(apart) < 2e-4
    assert sorted(seen.learner.held().tolist()) == sorted(unseen.learner.held().tolist())
    assert torch.equal(seen.ledger.keys, unseen.ledger.keys)


def test_what_has_no_sample_left_is_exactly_zero() -> None:
    learned = model("amber")
    for x, labels in stream(4):
        learned.observe(x, labels)
    for x, labels in stream(4):
        learned.forget(x, labels)
    state = numbers(learned.learner.state_dict()["statistics"])
    assert all((values == 0).all() for values in state.values())
    x, _ = exam()
    assert all(torch.isfinite(p).all() for p in learned.probabilities(x).values())
    with pytest.raises(InputError, match="was not learned as"):
        learned.forget(x[:1], [Label("robin", 1)])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_forgets_once_or_refuses_in_a_line(name: str) -> None:
    learned = model(name)
    batches = stream(3)
    for x, labels in batches:
        learned.observe(x, labels)
    x, labels = batches[2]
    held = len(learned.learner.held())
    learned.forget(x[:2], labels[:2])
    assert held - 2 <= len(learned.learner.held()) <= held
    with pytest.raises(InputError, match=r"^sample 1 was not learned as .*samples$"):
        learned.forget(x[[3, 0]], [labels[3], labels[0]])
    learned.forget(x[3:4], labels[3:4])  # it was not forgotten with the one that was refused
    with pytest.raises(InputError, match="was not learned as nobody"):
        learned.forget(x[4:5], [Label("nobody", 1)])
    other = next(label for label in true_tree() if label.level == 0 and label != labels[4])
    learned.relabel(x[4:5], labels[4:5], [other])
    learned.observe(*batches[0])
    images, _ = exam()
    assert all(torch.isfinite(p).all() for p in learned.probabilities(images).values())


@pytest.mark.parametrize("name", ["er", "cbrs", "rm", "clib", "halo", "icarl_sdc", "joint", "onlora"])
def test_what_is_forgotten_is_no_longer_replayed(name: str) -> None:
    learned = model(name, buffer=60, settings={"every": 12} if name == "rm" else {})
    batches = stream(4)
    for x, labels in batches:
        learned.observe(x, labels)
    memory = learned.learner.components()["memory"]
    x, labels = batches[1]
    before = {name: column[: memory.size].clone() for name, column in memory.columns.items()}
    kept = ~(before["x"][:, None] == x[None, :3]).flatten(2).all(2).any(1)
    assert (~kept).sum() == 3
    learned.forget(x[:3], labels[:3])
    assert memory.size == int(kept.sum())
    for column, stored in before.items():
        assert torch.equal(memory.columns[column][: memory.size], stored[kept]), column
    learned.relabel(x[3:4], labels[3:4], [Label("gull", 1)])
    again = (memory.columns["x"][: memory.size] == x[3]).flatten(1).all(1)
    assert memory.nodes[again].tolist() == [learned.taxonomy.id(Label("gull", 1))]


class Stubborn(Learner):
    """Neither sums nor a memory."""

    def __init__(self, setup: Setup, settings: Settings) -> None:
        self.taxonomy: Taxonomy | None = None

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.taxonomy = taxonomy
        return {}

    def predict(self, x: Tensor) -> dict[int, Tensor]:
        assert self.taxonomy is not None
        return {level: torch.full((len(x), n), 1 / n) for level, n in self.taxonomy.widths.items()}

    def components(self) -> dict[str, Stateful]:
        return {}


@pytest.mark.parametrize(
    ("method", "chosen", "says"),
    [
        ("tests.model.test_forgetting:Stubborn", {}, "Stubborn can not forget samples: it has neither"),
        ("acil", {"exposed_labels": False}, "with exposed_labels=false samples can not be forgotten"),
    ],
)
def test_what_can_not_forget_says_so_and_stays_as_it_is(method: str, chosen: dict[str, Any], says: str) -> None:
    learned = model(method, settings=chosen)
    ((x, labels),) = stream(1)
    learned.observe(x, labels)
    before = values(learned.state_dict())
    for _ in range(2):  # it is still known
        with pytest.raises(InputError, match=says):
            learned.forget(x[:1], labels[:1])
    assert values(learned.state_dict()) == before


@pytest.mark.parametrize("method", ["amber", "acil"])
def test_what_it_was_learned_as_is_not_known_any_more(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model still knows the sample, but the method has no room for its targets. All or none is forgotten."""
    monkeypatch.setattr(ledger, "VALUES", 12)
    learned = model(method, settings=COMPLETED if method == "amber" else {})
    batches = stream(8)
    for x, labels in batches:
        learned.observe(x, labels)
    before = values(learned.state_dict())
    (old, old_labels), (new, new_labels) = batches[0], batches[-1]
    with pytest.raises(InputError, match="too old to be forgotten"):
        learned.forget(torch.cat([new[-1:], old[:1]]), [new_labels[-1], old_labels[0]])
    assert values(learned.state_dict()) == before
    learned.forget(new[-1:], new_labels[-1:])


def test_killed_and_resumed_it_forgets_bit_for_bit(tmp_path: Path) -> None:
    def go_on(learned: Model) -> dict[str, Any]:
        for x, labels in stream(3, seed=5):
            learned.observe(x, labels)
        for x, labels in (first[1], first[5]):
            learned.relabel(x[:3], labels[:3], labels[1:4])
        learned.observe(*first[0])
        return values(learned.state_dict())

    first = stream(6)
    learned = model("amber", settings=COMPLETED, calibrate=True)
    for x, labels in first:
        learned.observe(x, labels)
    learned.forget(first[3][0][:2], first[3][1][:2])
    checkpoint.save(tmp_path, learned.state_dict())
    state = checkpoint.load_newest(tmp_path)
    assert state is not None
    assert go_on(Model.from_state(state)) == go_on(learned)


COMPLETED = {"completion": "always", "window": 3, "refresh": 4, "calibration": 6, "doubt": False}
NAMES = {0: ("bird", "fish"), 1: ("robin", "crow", "cod")}
LABELS = st.sampled_from([Label(name, level) for level, names in NAMES.items() for name in names])


class Corrected(RuleBasedStateMachine):
    """AMBER with labels that are completed, against the sums over the samples that are left."""

    def __init__(self) -> None:
        super().__init__()
        config = ModelConfig(LEVELS, method="amber", backbone="features:4", calibrate=False, settings=COMPLETED)
        self.model = Model(config)
        self.samples: list[tuple[Tensor, Label, int]] = []  # image, label, node as learned
        self.completed: dict[int, list[Tensor]] = defaultdict(list)  # level -> (φ, q) of committed samples
        self.count = 0
        with_all = Statistics.add_soft

        def spied(statistics: Statistics, phi: Tensor, q: Tensor, level: int) -> None:
            self.completed[level] += list(torch.cat([phi, q], 1)) if (q >= 0).all() else []
            with_all(statistics, phi, q, level)

        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(Statistics, "add_soft", spied)

    def teardown(self) -> None:
        self.patch.undo()

    @property
    def learner(self) -> Amber:
        assert isinstance(self.model.learner, Amber)
        return self.model.learner

    @rule(labels=st.lists(LABELS, min_size=1, max_size=4))
    def observe(self, labels: list[Label]) -> None:
        x = torch.randn(len(labels), 4, 1, 1, generator=torch.Generator().manual_seed(self.count))
        self.count += 1
        self.model.observe(x, labels)
        self.samples += [(image, label, self._node(label)) for image, label in zip(x, labels, strict=True)]

    def _node(self, label: Label) -> int:
        return self.model.taxonomy.id(label)

    @precondition(lambda self: self.samples)
    @rule(place=st.integers(0, 99))
    def forget(self, place: int) -> None:
        x, label, _ = self._taken(place)
        self.model.forget(x[None], [label])
        with pytest.raises(InputError, match="was not learned as"):
            self.model.forget(x[None], [label])

    @precondition(lambda self: self.samples)
    @rule(place=st.integers(0, 99), new=LABELS)
    def relabel(self, place: int, new: Label) -> None:
        x, label, _ = self._taken(place)
        self.model.relabel(x[None], [label], [new])
        self.samples.append((x, new, self._node(new)))

    def _taken(self, place: int) -> tuple[Tensor, Label, int]:
        sample = self.samples.pop(place % len(self.samples))
        (phi,) = self.learner.features(sample[0][None])
        for level, rows in self.completed.items():
            self.completed[level] = [row for row in rows if (row[:4] - phi).abs().max() > 1e-5]
        return sample

    @rule(kind=st.sampled_from(["link", "merge", "rename"]), place=st.integers(0, 5))
    def revise(self, kind: Any, place: int) -> None:
        child, other = Label(NAMES[1][place % 3], 1), Label(NAMES[1][(place + 1) % 3], 1)
        into = {"link": Label(NAMES[0][place % 2], 0), "merge": other, "rename": Label(f"new {child.name}", 1)}[kind]
        try:
            self.model.revise(Revision(kind, child, into))
        except InputError:  # a class is not known yet, or the name is taken
            return

    @rule()
    def restart(self) -> None:
        state = self.model.state_dict()
        self.model = Model.from_state(state)
        assert values(self.model.state_dict()) == values(state)

    @invariant()
    def sums_are_those_of_what_is_left(self) -> None:
        statistics = self.learner.statistics
        sums, counts = torch.zeros_like(statistics.sums.filled), torch.zeros_like(statistics.counts.filled)
        grams: dict[int, Tensor] = {}
        for x, label, node in self.samples:
            (phi,) = self.learner.features(x[None])
            sums[node] += phi
            counts[node] += 1
            grams[label.level] = grams.get(label.level, torch.zeros(4, 4)) + torch.outer(phi, phi)
        assert torch.equal(statistics.counts.filled, counts)
        assert torch.allclose(statistics.sums.filled, sums, atol=1e-5)
        assert grams.keys() == statistics.grams.keys()
        assert all(torch.allclose(statistics.grams[level], grams[level], atol=1e-5) for level in grams)
        for level, system in statistics.soft.items():
            rows = self.completed[level]
            targets = torch.zeros(len(rows), len(system.N))
            for place, row in enumerate(rows):
                targets[place, : len(row) - 4] = row[4:]
            phi = torch.stack([row[:4] for row in rows]) if rows else torch.zeros(0, 4)
            assert torch.allclose(system.M, targets.t() @ phi, atol=1e-5)
            assert torch.allclose(system.N, targets.sum(0), atol=1e-5)
            assert torch.allclose(system.A, (targets.sum(1, keepdim=True) * phi).t() @ phi, atol=1e-5)
        window = self.learner.window
        assert window.seen == len(self.samples) == len(self.model.ledger.keys)
        assert len(window.keys) == max(len(window.y), len(window.recent))
        assert window.recent.tolist() == [node for *_, node in self.samples], "labels nearby, in order"
        assert window.y.tolist() == [node for *_, node in self.samples][len(self.samples) - len(window.y) :]


TestCorrected = Corrected.TestCase
TestCorrected.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
