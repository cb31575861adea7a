from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dhocl.report.paired import T, difference, stands_out

NUMBERS = st.floats(-100, 100).map(lambda value: round(value, 3))


def keyed(values: list[float]) -> dict[tuple[int, str], float]:
    return {(seed, f"stream {seed}"): value for seed, value in enumerate(values)}


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=31))
def test_the_interval_is_that_of_a_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    a, b = (list(side) for side in zip(*pairs, strict=True))
    found = difference(keyed(a), keyed(b))
    assert found is not None
    assert found.pairs == len(pairs)
    assert found.mean == pytest.approx(np.mean(np.subtract(a, b)), abs=1e-9)
    if np.ptp(np.subtract(a, b)) > 1e-6:
        low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.half == pytest.approx((high - low) / 2, rel=1e-4)
        if min(abs(low), abs(high)) > 1e-2:
            assert found.distinct == (low > 0 or high < 0)


def test_quantiles_are_those_of_t() -> None:
    assert [round(float(stats.t.ppf(0.975, df)), 4) for df in range(1, len(T) + 1)] == list(T)
    many = keyed([float(value) for value in range(60)])
    half = difference(many, dict.fromkeys(many, 0.0)).half
    assert half == pytest.approx(stats.t.ppf(0.975, 59) * np.std(range(60), ddof=1) / 60**0.5, rel=0.04)


def test_only_the_same_seed_and_stream_make_a_pair() -> None:
    a, b = {(0, "x"): 1.0, (1, "y"): 2.0, (2, "z"): 9.0}, {(0, "x"): 3.0, (1, "other"): 2.0, (2, "z"): 10.0}
    assert difference(a, b)[::2] == (-1.5, 2)
    assert difference({(0, "x"): 1.0}, {(0, "y"): 1.0}) is None


def test_what_stands_out() -> None:
    best = keyed([50.0, 60.0, 70.0])
    noisy, worse = keyed([52.0, 55.0, 69.0]), keyed([49.0, 58.9, 69.1])
    assert stands_out(best, [worse], 1), "1 above on every seed, although the spread is 10"
    assert not stands_out(best, [worse], -1)
    assert not stands_out(best, [worse, noisy], 1)
    few, others = {(0, "stream 0"): 1.0}, {(0, "x"): 1.0, (1, "y"): 1.0}
    assert not stands_out(best, [few, others], 1), "nothing to compare with"
    assert stands_out(best, [worse, few, others], 1)


def test_the_highest_mean_does_not_stand_out_if_the_pairs_say_otherwise() -> None:
    high = {(0, "a"): 10.0, (1, "b"): 10.0, (2, "c"): 40.0}
    assert not stands_out(high, [{(0, "a"): 11.0, (1, "b"): 11.0}], 1)
