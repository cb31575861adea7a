from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dhocl.nn import ledger as module
from dhocl.nn.ledger import Ledger, TargetLedger, content_keys


def test_the_key_is_that_of_the_content_alone() -> None:
    x = torch.randint(256, (3, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    keys = content_keys(x)
    assert keys.dtype == torch.long
    assert len(set(keys.tolist())) == 3
    assert torch.equal(content_keys(x[[1, 0, 1]]), keys[[1, 0, 1]])
    assert torch.equal(content_keys(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)), keys), "not of the layout"
    assert content_keys(x[:1].float())[0] != keys[0]


def test_the_newest_of_equal_samples_is_found_and_none_twice() -> None:
    ledger = Ledger()
    ledger.add(torch.tensor([7, 7, 8, 7]), torch.tensor([1, 1, 1, 2]))
    find = lambda keys, nodes: ledger.find(torch.tensor(keys), torch.tensor(nodes))  # noqa: E731
    assert find([7, 7, 7, 9], [1, 1, 1, 1]) == [1, 0, None, None]
    assert find([7, 8], [2, 2]) == [3, None]
    assert ledger.find(torch.tensor([8]), torch.tensor([5]), known=torch.tensor([5, 5, 5, 5])) == [2]
    ledger.remove([1, 2])
    assert (ledger.keys.tolist(), ledger.nodes.tolist()) == ([7, 7], [1, 2])


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), min_size=2, max_size=2)), max_size=4), max_size=8
)


@settings(deadline=None)
@given(batches=BATCHES, removed=st.lists(st.integers(0, 20), max_size=6))
def test_targets_are_those_of_their_sample(batches: list[list[tuple[int, list[int]]]], removed: list[int]) -> None:
    """Compared with a list of all samples, of which the newest count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REMEMBERED", 6)
        patch.setattr(module, "VALUES", 9)
        ledger, samples = TargetLedger(), list[tuple[int, list[int]]]()
        for batch in batches:
            q = torch.tensor([values for _, values in batch]).view(-1, 2).float()
            keys = torch.tensor([key for key, _ in batch], dtype=torch.long)
            ledger.add(keys, keys, {3: q[:, :1], 5: q.flip(1)})
            samples = [*samples, *batch][-6:]
            while sum((values[0] != 0) + sum(v != 0 for v in values) for _, values in samples) > 9:
                samples = samples[1:]
            for place in [place for place in removed if place < len(samples)][:1]:
                ledger.remove([place])
                samples = samples[:place] + samples[place + 1 :]
    assert ledger.keys.tolist() == [key for key, _ in samples]
    copy = TargetLedger()
    copy.load_state_dict(ledger.state_dict())
    for place, (_, (a, b)) in enumerate(samples):
        wanted = {3: {0: a} if a else {}, 5: {column: value for column, value in enumerate((b, a)) if value}}
        for each in (ledger, copy):
            found = {level: dict(torch.stack(t, 1).tolist()) for level, t in each.targets(place).items()}
            assert found == {level: values for level, values in wanted.items() if values}
    assert set(ledger.owners.tolist()) <= set(ledger.serials.tolist()), "nothing of other samples is kept"
