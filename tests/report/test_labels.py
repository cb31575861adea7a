"""Names of points do not overlap, and are near their points."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dhocl.report.labels import GAP, Box, place_names

SPOTS = st.lists(st.tuples(st.floats(0, 300), st.floats(0, 300)), min_size=1, max_size=8)


@given(SPOTS)
def test_names_meet_neither_each_other_nor_a_point(spots: list[tuple[float, float]]) -> None:
    boxes = place_names(spots, [30.0] * len(spots), 8.0)
    assert not any(one.meets(other) for one, other in combinations(boxes, 2))
    assert not any(box.left < x < box.left + 30 and box.bottom < y < box.bottom + 8 for box in boxes for x, y in spots)
    for box, (x, _) in zip(boxes, spots, strict=True):
        assert box.left in (x + GAP, x - GAP - 30)


def test_a_name_alone_is_at_the_right() -> None:
    assert place_names([(10, 20)], [30], 8) == [Box(14, 16, 30, 8)]


def test_a_name_without_room_is_at_the_right() -> None:
    crowd = [(0.0, 0.0)] * 100
    assert place_names(crowd, [30] * 100, 8)[-1] == Box(4, -4, 30, 8)
