from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dhocl import Classifier, InputError, Label
from dhocl.checks import LEAVES, exam, pictures
from dhocl.knowledge import Background, Link, Silent, open_source
from dhocl.methods.acil import ACIL
from dhocl.nn.backbones import wrap
from tests.helpers.waiting import until

TREE = """child\tlevel\tparent
bird\tkind\t
fish\tkind\t
robin\tspecies\tbird
crow\tspecies\tbird
cod\tspecies\tfish
carp\tspecies\tfish
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree.tsv").write_text(TREE)
    return tmp_path / "tree.tsv"


def small(tree: Path | None = None, **more: object) -> Classifier:
    return Classifier(("kind", "species"), tree=tree, backbone="tiny", image_size=32, batch=8, replay_batch=4, **more)


def examples(n: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Images as height x width x 3, labelled at mixed levels."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, n).tolist()
    names = [
        (LEAVES[leaf], "species") if rng.random() < 0.6 else ("bird" if leaf < 2 else "fish", "kind") for leaf in leaves
    ]
    return pictures(leaves, rng).permute(0, 2, 3, 1).numpy(), names


def test_learns_and_predicts_at_every_level(tree: Path) -> None:
    classifier = small(tree)
    for seed in range(6):
        classifier.learn(*examples(24, seed))
    images = pictures([0, 1, 2, 3], np.random.default_rng(9)).permute(0, 2, 3, 1).numpy()
    found = classifier.predict(images)
    assert [prediction.levels["kind"].name for prediction in found] == ["bird", "bird", "fish", "fish"]
    assert [prediction.levels["species"].name for prediction in found] == list(LEAVES)
    assert [prediction.path["species"] for prediction in found] == list(LEAVES)
    assert [prediction.path["kind"] for prediction in found] == ["bird", "bird", "fish", "fish"]
    assert all(0 < prediction.probability <= 1 for prediction in found)


def test_saved_and_loaded_goes_on_exactly(tree: Path, tmp_path: Path) -> None:
    first = small(tree)
    first.learn(*examples(20))
    first.save(tmp_path / "model")
    second = Classifier.load(tmp_path / "model")
    for classifier in (first, second):
        classifier.learn(*examples(20, seed=1))
    images, _ = examples(5, seed=2)
    assert first.predict(images) == second.predict(images)
    assert first.taxonomy.dumps() == second.taxonomy.dumps()


def test_what_is_told_after_loading_is_dated_like_what_is_told_without(tree: Path, tmp_path: Path) -> None:
    first = small(tree)
    for seed in range(3):  # the later ones bring nothing new
        first.learn(*examples(20, seed))
    first.save(tmp_path / "model")
    second = Classifier.load(tmp_path / "model")
    for classifier in (first, second):
        classifier.unlink(("robin", "species"))
    assert first.taxonomy.events[-1] == second.taxonomy.events[-1]
    assert first.taxonomy.events[-1].time == first.taxonomy.time


def test_a_reader_stays_as_it_is(tree: Path) -> None:
    classifier = small(tree)
    classifier.learn(*examples(20))
    images, _ = examples(5, seed=2)
    before, reader = classifier.predict(images), classifier.reader()
    classifier.learn(*examples(20, seed=1))
    classifier.learn(images, [("wren", "species")] * 5)
    assert reader.predict(images) == before
    assert classifier.predict(images) != before


def test_an_unlinked_class_is_outside_the_tree(tree: Path) -> None:
    classifier = small(tree)
    classifier.learn(*examples(20))
    classifier.unlink(("robin", "species"))
    assert classifier.taxonomy.parent(classifier.taxonomy.id(Label("robin", 1))) == -1
    with pytest.raises(InputError, match=r"'dodo' .* is not in the taxonomy"):
        classifier.unlink(("dodo", "species"))


def test_images_come_in_any_form(tree: Path, tmp_path: Path) -> None:
    classifier = small(tree)
    images, names = examples(8)
    classifier.learn(images, names)
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    forms = [images[0], Image.fromarray(images[0]), tmp_path / "a.png", str(tmp_path / "a.png"), images[0] / 255]
    forms.append(images[0].transpose(2, 0, 1))
    found = [classifier.predict([form]) for form in forms]  # alone: rows of one product may differ in the last bit
    assert all(prediction == found[0] for prediction in found)


def test_without_a_tree_links_can_be_told_by_hand() -> None:
    classifier = small()
    classifier.learn(*examples(30))
    tree = classifier.taxonomy
    assert all(tree.parent(node) == -1 for node in range(len(tree)))
    classifier.link(("robin", "species"), ("bird", "kind"))
    assert tree.labels[tree.parent(tree.labels.index(("robin", 1)))].name == "bird"
    with pytest.raises(InputError, match="'dodo'"):
        classifier.link(("dodo", "species"), ("bird", "kind"))
    with pytest.raises(InputError, match="cycle"):
        classifier.link(("bird", "kind"), ("robin", "species"))


def test_a_synonym_goes_to_its_accepted_class_at_once_and_for_good(tree: Path, tmp_path: Path) -> None:
    classifier = small(tree)
    for seed in range(6):
        classifier.learn(*examples(24, seed))
    images = pictures([0, 1, 2, 3], np.random.default_rng(9)).permute(0, 2, 3, 1).numpy()
    before = classifier.predict(images)
    classifier.merge(("crow", "species"), into=("robin", "species"))
    after = classifier.predict(images)
    assert [found.levels["species"].name for found in after] == ["robin", "robin", "cod", "carp"]
    assert [found.path["species"] for found in after] == ["robin", "robin", "cod", "carp"]
    assert [found.path["kind"] for found in after] == ["bird", "bird", "fish", "fish"]
    assert all(old.levels["kind"] == new.levels["kind"] for old, new in zip(before, after, strict=True))
    assert after[1].levels["species"].probability >= before[1].levels["species"].probability
    classifier.learn(*examples(24, seed=7))  # the images still come as crows
    classifier.save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model")
    for one in (classifier, again):
        one.learn(*examples(24, seed=8))
    assert [found.levels["species"].name for found in again.predict(images)] == ["robin", "robin", "cod", "carp"]
    assert classifier.predict(images) == again.predict(images)


def test_a_source_revises_the_tree_in_mid_stream(tmp_path: Path) -> None:
    (tmp_path / "taxa.tsv").write_text(
        "taxonID\tscientificName\ttaxonRank\tparentNameUsageID\tacceptedNameUsageID\n"
        "1\tbird\tkind\t\t\n2\trobin\tspecies\t1\t\n3\tcrow\tspecies\t\t2\n"
        "4\tAves\tkind\t\t1\n5\tfish\tkind\t\t\n6\tcod\tspecies\t5\t\n7\tcarp\tspecies\t5\t\n"
    )
    source = open_source(f"darwin_core:{tmp_path}/taxa.tsv", levels=("kind", "species"))
    classifier = small(source=Background(source))
    images = pictures([0, 1, 2, 3], np.random.default_rng(9)).permute(0, 2, 3, 1).numpy()

    def learned() -> bool:
        pixels, names = examples(24, len(classifier.taxonomy.events))
        classifier.learn(pixels, [("Aves" if name == "bird" else name, level) for name, level in names])
        found = classifier.predict(images)
        for prediction in found:
            told = {guess.name for guess in prediction.levels.values()} | set(prediction.path.values())
            assert told <= {label.name for label in classifier.taxonomy}
        return [" ".join(p.path.values()) for p in found] == ["bird robin", "bird robin", "fish cod", "fish carp"]

    until(learned)
    kinds = [event.kind for event in classifier.taxonomy.events]
    assert (kinds.count("rename"), kinds.count("merge")) == (1, 1)
    classifier.save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model", source=source)
    assert again.predict(images) == classifier.predict(images)
    classifier.learn(images[:1], [("crow", "species")])
    assert classifier.taxonomy.events[-1].kind != "add"


def test_a_class_can_be_renamed(tree: Path) -> None:
    classifier = small(tree)
    for seed in range(6):
        classifier.learn(*examples(24, seed))
    classifier.rename(("robin", "species"), "Erithacus rubecula")
    classifier.rename(("bird", "kind"), "Aves")
    images = pictures([0, 1], np.random.default_rng(9)).permute(0, 2, 3, 1).numpy()
    assert classifier.predict(images)[0].path == {"kind": "Aves", "species": "Erithacus rubecula"}
    known = len(classifier.taxonomy)
    classifier.learn(*examples(24, seed=7))  # by the old names
    classifier.learn(images[:1], [("Erithacus rubecula", "species")])
    assert len(classifier.taxonomy) == known


def test_a_split_can_be_announced(tmp_path: Path) -> None:
    classifier = Classifier(["kind", "species", "race"], backbone="tiny", image_size=32, batch=8)
    for seed in range(6):
        classifier.learn(*examples(24, seed))
    for species, kind in (("robin", "bird"), ("cod", "fish")):
        classifier.link((species, "species"), (kind, "kind"))
    images = pictures([0, 2], np.random.default_rng(9)).permute(0, 2, 3, 1).numpy()
    before = classifier.predict(images, decode="level")
    classifier.add(("jay", "species"), ("bird", "kind"))
    classifier.add(("fan robin", "race"), ("robin", "species"))
    classifier.add(("fen robin", "race"), ("robin", "species"))
    after = classifier.predict(images, decode="level")
    assert [p.levels["species"] for p in after] == [p.levels["species"] for p in before]
    assert [p.levels["race"].probability for p in after] == [0.5, 0.5], "nothing is known of races"
    assert after[0].path["species"] == "robin"
    assert after[1].path == {"kind": "fish", "species": "cod"}
    events = [(event.kind, classifier.taxonomy.labels[event.node].name) for event in classifier.taxonomy.events]
    assert events[-6:] == [(kind, name) for name in ("jay", "fan robin", "fen robin") for kind in ("add", "link")]
    classifier.save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model")
    for one in (classifier, again):
        one.learn(images[:1], [("fen robin", "race")])
    assert again.predict(images) == classifier.predict(images)
    assert again.predict(images)[0].path["race"] == "fen robin"


def test_revisions_that_can_not_be_are_refused(tree: Path) -> None:
    classifier = small(tree)
    classifier.learn(*examples(24))
    with pytest.raises(InputError, match="'dodo'"):
        classifier.rename(("dodo", "species"), "Raphus")
    with pytest.raises(InputError, match="merge the two"):
        classifier.rename(("robin", "species"), "crow")
    with pytest.raises(InputError, match="their levels differ"):
        classifier.merge(("robin", "species"), into=("bird", "kind"))
    known = list(classifier.taxonomy)
    with pytest.raises(InputError, match="is there already: link it"):
        classifier.add(("robin", "species"), ("bird", "kind"))
    with pytest.raises(InputError, match="'dodo'"):
        classifier.add(("wren", "species"), ("dodo", "kind"))
    with pytest.raises(InputError, match="a parent's level is smaller"):
        classifier.add(("wren", "species"), ("robin", "species"))
    assert list(classifier.taxonomy) == known
    with pytest.raises(InputError, match="unknown level 'genus'"):
        classifier.merge(("robin", "genus"), into=("bird", "kind"))


def test_a_source_is_asked_again_and_what_the_tree_does_not_tell(tree: Path, tmp_path: Path) -> None:
    class Slow:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def query(self, label: Label, known: Collection[Label]) -> list[Link]:
            self.asked.append(label.name)
            return [(label, Label("bird", 0))] if self.asked.count("wren") == 3 and label.name == "wren" else []

    source = Slow()
    classifier = small(tree, source=source)
    images, _ = examples(8)
    for _ in range(4):
        classifier.learn(images, [("bird", "kind"), ("robin", "species"), ("wren", "species"), ("cod", "species")] * 2)
    assert source.asked == ["bird", "wren", "cod", "wren", "cod", "wren", "cod"]  # the tree tells of bird and robin
    assert classifier.taxonomy.parent(classifier.taxonomy.id(Label("wren", 1))) == 0
    classifier.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model", source=source).taxonomy.dumps() == classifier.taxonomy.dumps()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.full((8, 8, 3), np.nan), "image 0 holds NaN"),
        (np.zeros((0, 8, 3), np.uint8), "image 0 is empty"),
        (np.zeros((8, 8, 4), np.uint8), r"image 0 has shape \(8, 8, 4\)"),
        (np.zeros((8, 8), np.uint8), r"image 0 has shape \(8, 8\)"),
        (np.full((8, 8, 3), 200.0), "outside 0..1"),
        ("nowhere.png", "there is no file nowhere.png"),
    ],
)
def test_bad_images_are_refused(image: object, message: str) -> None:
    classifier = small()
    with pytest.raises(InputError, match=message):
        classifier.learn([image], [("robin", "species")])
    assert len(classifier.taxonomy) == 0


def test_bad_labels_are_refused(tree: Path) -> None:
    classifier = small(tree)
    images, names = examples(4)
    with pytest.raises(InputError, match="unknown level 'genus': choose one of kind, species"):
        classifier.learn(images, [("robin", "genus")] * 4)
    with pytest.raises(InputError, match="4 images, but 3 labels"):
        classifier.learn(images, names[:3])
    with pytest.raises(InputError, match="nothing is learned yet"):
        classifier.predict(images)
    with pytest.raises(InputError, match="is not a pair"):
        classifier.learn(images[:1], ["robin"])
    with pytest.raises(InputError, match="`buffer` -1: at least 0"):
        small(tree, buffer=-1)
    with pytest.raises(InputError, match="no image given"):
        classifier.learn([], [])
    with pytest.raises(InputError, match="levels"):
        Classifier(("a", "a"))
    with pytest.raises(InputError, match="has the levels kind, species"):
        Classifier(("order", "species"), tree=tree, backbone="tiny")


def test_what_was_saved_last_is_what_is_loaded(tree: Path, tmp_path: Path) -> None:
    first, second = small(tree), small()
    first.learn(*examples(40))
    second.learn(*examples(8, seed=1))
    for classifier in (first, first, second):  # the second has learned less, and is saved later
        classifier.save(tmp_path / "model")
        assert Classifier.load(tmp_path / "model").taxonomy.dumps() == classifier.taxonomy.dumps()
    names = {label.name for label in second.taxonomy}
    if {"robin", "bird"} <= names:
        second.link(("robin", "species"), ("bird", "kind"))
        second.save(tmp_path / "model")
        assert Classifier.load(tmp_path / "model").taxonomy.dumps() == second.taxonomy.dumps()


def test_what_is_not_saved_must_be_given_again(tmp_path: Path) -> None:
    classifier = small(source=Silent())
    classifier.learn(*examples(8))
    classifier.save(tmp_path / "model")
    with pytest.raises(InputError, match="give it as source="):
        Classifier.load(tmp_path / "model")
    assert Classifier.load(tmp_path / "model", source=Silent()).taxonomy.dumps() == classifier.taxonomy.dumps()


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = wrap(torch.nn.Sequential(torch.nn.Conv2d(3, 16, 8, stride=8), torch.nn.ReLU(), torch.nn.Dropout(0.5)))
    classifier = Classifier(("kind", "species"), backbone=network, image_size=32, batch=8, replay_batch=4)
    images, names = examples(16)
    classifier.learn(images, names)
    assert classifier.predict(images) == classifier.predict(images), "dropout must not reach a prediction"
    classifier.save(tmp_path / "model")
    with pytest.raises(InputError, match="give it as backbone="):
        Classifier.load(tmp_path / "model")


def test_a_plain_network_is_wrapped() -> None:
    network = torch.nn.Conv2d(3, 16, 8, stride=8)
    classifier = Classifier(("kind", "species"), method="acil", backbone=network, image_size=32)
    images, names = examples(16)
    classifier.learn(images, names)
    assert len(classifier.predict(images)) == 16
    with pytest.raises(InputError, match=r"must return a feature map \(B, C, h, w\), got \(1, 3, 4096\)"):
        Classifier(("kind", "species"), backbone=torch.nn.Flatten(2))


def test_a_method_of_ones_own_is_saved_by_name(tmp_path: Path) -> None:
    classifier = small(method=ACIL)
    images, names = examples(16)
    classifier.learn(images, names)
    classifier.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").predict(images) == classifier.predict(images)


def test_one_image_need_not_be_in_a_list_and_size_does_not_matter(tree: Path, tmp_path: Path) -> None:
    classifier = small(tree)
    classifier.learn(*examples(8))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 70, 3)).astype(np.uint8))
    picture.save(tmp_path / "a.png")
    found = [classifier.predict(form) for form in (picture, np.asarray(picture), str(tmp_path / "a.png"))]
    found.append(classifier.predict(iter([picture])))
    assert all(len(predictions) == 1 and predictions == found[0] for predictions in found)
    assert len(classifier.predict([picture.convert("L"), picture.convert("RGBA")])) == 2


def test_a_damaged_file_is_refused(tree: Path, tmp_path: Path) -> None:
    classifier = small(tree)
    classifier.learn(*examples(8))
    classifier.save(tmp_path / "model")
    (path,) = (tmp_path / "model" / "checkpoints").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    for _ in range(2):
        with pytest.raises(InputError, match="has no intact checkpoint: restore 000000001-"):
            Classifier.load(tmp_path / "model")
    assert path.with_suffix(".damaged").exists(), "it may be worth something to somebody"


def test_a_wrong_label_is_taken_back(tmp_path: Path) -> None:
    """By any name of its class, from files too; the result is that of the right label from the start."""
    x, leaves = exam()
    names = [(LEAVES[leaf], "species") for leaf in leaves.tolist()]
    files = []
    for place, image in enumerate(x[:2]):
        files.append(tmp_path / f"{place}.png")
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(files[-1])
    wrong, right = small(method="ncm", calibrate=False), small(method="ncm", calibrate=False)
    wrong.learn(x, [("crow", "species")] * 2 + names[2:])
    wrong.rename(("crow", "species"), "raven")
    wrong.relabel(files, [("raven", "species")] * 2, names[:2])
    wrong.forget(x[5:7].permute(0, 2, 3, 1).numpy(), names[5:7])
    right.learn(torch.cat([x[2:5], x[7:], x[:2]]), names[2:5] + names[7:] + names[:2])
    right.rename(("crow", "species"), "raven")
    for one, other in zip(wrong.predict(x), right.predict(x), strict=True):
        assert one.path == other.path
        assert one.probability == pytest.approx(other.probability, abs=1e-5)
    with pytest.raises(InputError, match="sample 1 was not learned as"):
        wrong.forget(x[4:6], names[4:6])
    with pytest.raises(InputError, match="2 images, but 1 labels"):
        wrong.forget(x[:2], names[:1])
    with pytest.raises(InputError, match="level"):
        wrong.relabel(x[:1], names[:1], [("robin", "genus")])
    wrong.forget(x[:1], names[:1])  # what was refused has changed nothing
