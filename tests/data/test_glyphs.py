from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dhocl.data import Selection, glyphs
from dhocl.data.dataset import Source, select
from dhocl.data.glyphs import SCRIPTS, TEST_FACES, TRAIN_FACES, Script, lineages
from dhocl.data.letterforms import distinct, shape, shared
from dhocl.data.rendering import BRIGHTNESS, STYLE, _contrasting, render

FEW = (Script("Latin", "AE ae èé", glyphs._letter), Script("Arrows", "←↓ ↞↟", glyphs._first_word))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """The real tree, with one picture of each kind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DHOCL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield glyphs.read(Selection(), per_class=(1, 1))


def test_the_tree_has_three_levels_and_uneven_branches(whole: Source) -> None:
    tree = whole.tree
    assert whole.levels == ("script", "base", "character")
    assert tree.levels == [0, 1, 2]
    assert 150 <= tree.widths[2] <= 250
    assert (tree.paths[tree.nodes(2)] >= 0).all()
    for level in (0, 1):
        branches = [len(tree.children(node)) for node in tree.nodes(level).tolist()]
        assert min(branches) >= 2
        assert max(branches) >= 3 * min(branches)


def test_names_are_those_of_unicode(whole: Source) -> None:
    tree = whole.tree
    for node in tree.nodes(2).tolist():
        character, base, script = (tree.labels[step].name for step in tree.lineage(node))
        assert character == f"{character[0]} {unicodedata.name(character[0])}"
        assert base.startswith(f"{script} ")
    lineage = lineages(SCRIPTS)
    assert lineage["é"] == ("Latin", "Latin e", "é LATIN SMALL LETTER E WITH ACUTE")
    assert lineage["Й"][1] == "Cyrillic и"
    assert lineage["↣"][1] == "Arrows rightwards"
    assert lineage["▣"][1] == "Geometric Shapes square"
    assert "÷" not in lineage


def test_every_character_has_its_own_pictures(whole: Source) -> None:
    for table in (whole.train, whole.test):
        assert Counter(table.nodes.tolist()) == dict.fromkeys(whole.tree.nodes(2).tolist(), 1)
        images = table.images.decoded()
        assert images.shape[1:] == (64, 64, 3)
        assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)
    assert not whole.flip


def test_characters_that_look_alike_are_kept_once() -> None:
    assert distinct(["A", "Α", "А"], ["Sans"]) == ["A"]
    assert distinct(["m", "т"], ["Sans"]) == ["m", "т"]
    assert distinct(["m", "т"], ["Sans", "Serif-Italic"]) == ["m"]
    assert distinct(["S", "s", "E", "e", "é", "è", "ê", "ñ"], ["Sans", "Serif"]) == [*"SEeéèêñ"]


def test_all_faces_have_all_characters(whole: Source) -> None:
    drawable = shared((*TRAIN_FACES, *TEST_FACES))
    assert {whole.tree.labels[node].name[0] for node in whole.tree.nodes(2).tolist()} <= drawable
    assert "😀" not in drawable


def test_test_pictures_use_faces_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not set(TRAIN_FACES) & set(TEST_FACES)
    used: list[str] = []

    def noting(character: str, face: str) -> Image.Image:
        used.append(face)
        return shape(character, face)

    monkeypatch.setattr(glyphs, "shape", noting)
    source = glyphs.read(Selection(), FEW, (len(TRAIN_FACES), len(TEST_FACES)))
    trained = source.tree.widths[2] * len(TRAIN_FACES)
    assert set(used[:trained]) == set(TRAIN_FACES)
    assert set(used[trained:]) == set(TEST_FACES)


def test_the_cache_gives_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw() -> tuple[np.ndarray, np.ndarray, list[str]]:
        source = glyphs.read(Selection(), FEW, (3, 2))
        parts = [table.images.decoded() for table in (source.train, source.test)]
        return parts[0], parts[1], [label.name for label in source.tree]

    first = draw()
    with monkeypatch.context() as patch:
        patch.setattr(glyphs, "_build", lambda *_: pytest.fail("drawn again"))
        again = draw()
    monkeypatch.setenv("DHOCL_CACHE", str(tmp_path / "other"))
    fresh = draw()
    for other in (again, fresh):
        assert np.array_equal(first[0], other[0])
        assert np.array_equal(first[1], other[1])
        assert first[2] == other[2]


def test_a_characters_pictures_do_not_depend_on_the_others() -> None:
    few = glyphs.read(Selection(), FEW, (2, 1))
    fewer = glyphs.read(Selection(), FEW[1:], (2, 1))
    arrow = len(fewer.train.nodes)
    assert np.array_equal(few.train.images.decoded()[-arrow:], fewer.train.images.decoded()[:arrow])


def test_the_style_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    glyphs.read(Selection(), FEW, (1, 1))
    monkeypatch.setattr(glyphs, "STYLE", STYLE._replace(noise=0.0))
    glyphs.read(Selection(), FEW, (1, 1))
    assert len(list(own_cache.glob("glyphs-*.train.npy"))) == 2


def test_another_size_is_scaled() -> None:
    source = glyphs.read(Selection(image_size=32), FEW, (2, 1))
    plain = glyphs.read(Selection(), FEW, (2, 1))
    small, large = (select(one, Selection()).train.images.float() for one in (source, plain))
    assert small.shape[2:] == (32, 32)
    assert (small.mean((2, 3)) - large.mean((2, 3))).abs().max() < 2


def test_letters_stand_out_from_their_ground() -> None:
    rng = np.random.default_rng(0)
    ground = rng.uniform(0, 255, (500, 3))
    letters = _contrasting(ground, rng)
    assert (np.abs((letters - ground) @ BRIGHTNESS) >= STYLE.contrast - 1e-6).all()
    assert letters.min() >= 0
    assert letters.max() <= 255


def test_the_shape_stays_in_the_picture() -> None:
    """The tallest and the widest shapes, drawn many times: hardly any ink is lost at the border."""
    tall, wide = shape("Ϋ", "Serif-Bold"), shape("⊞", "Sans")
    pictures = render([tall, wide] * 40, 64, np.random.default_rng(1))
    assert pictures.shape == (80, 64, 64, 3)
    border = np.concatenate([pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]], axis=1)
    inner = pictures[:, 20:44, 20:44].reshape(80, -1, 3)
    assert border.astype(float).std(axis=1).mean() < 0.7 * inner.astype(float).std(axis=1).mean()
