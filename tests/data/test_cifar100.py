from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.data import Selection, cifar100, load
from tests.helpers.fakes import KINDS, Files, cifar, pack, python2_dict

ROOT = "cifar-100-python"


def offer(files: Files, data: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "folder") -> Selection:
    """The files as if they were the published ones."""
    monkeypatch.setattr(
        cifar100, "MD5", {name: hashlib.md5(files[name]).hexdigest() for name in ("train", "test", "meta")}
    )
    pack(files, data, ROOT, kind)
    return Selection(data=data)


@pytest.mark.parametrize("kind", KINDS)
def test_images_and_labels_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    files = cifar()
    selection = offer(files, tmp_path / "data", monkeypatch, kind)
    for _ in range(2):  # the second time from the cache
        dataset = load("cifar100", selection)
        for part in ("train", "test"):
            table = pickle.loads(files[part])
            split = getattr(dataset, part)
            assert torch.equal(split.images, torch.from_numpy(table[b"data"].reshape(-1, 3, 32, 32)))
            assert dataset.tree.complete(split.nodes)[:, 2].tolist() == table[b"fine_labels"]


def test_the_tree_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load("cifar100", offer(cifar(), tmp_path / "data", monkeypatch))
    tree = dataset.tree
    assert dataset.levels == ("group", "superclass", "class")
    assert tree.widths == {0: 8, 1: 20, 2: 100}
    assert (tree.paths[tree.nodes(2)] >= 0).all()
    assert all(len(tree.children(node)) == 5 for node in tree.nodes(1).tolist())
    names = [tree.labels[node].name for node in tree.lineage(int(tree.nodes(2)[1]))]
    assert names == ["aquarium fish", "fish", "aquatic animals"]
    assert dataset.flip


def test_another_size_is_antialiased_bicubic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = offer(cifar(), tmp_path / "data", monkeypatch)
    plain = load("cifar100", selection).test.images
    for size in (16, 48):
        scaled = load("cifar100", Selection(selection.data, image_size=size)).test.images
        assert scaled.shape == (100, 3, size, size)
        image = Image.fromarray(plain[7].permute(1, 2, 0).numpy())
        reference = np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)).astype(int)
        assert np.abs(scaled[7].permute(1, 2, 0).numpy() - reference).max() <= 2


def test_an_altered_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar()
    selection = offer(files, tmp_path / "data", monkeypatch)
    found = hashlib.md5(files["train"] + b"x").hexdigest()
    (tmp_path / "data" / ROOT / "train").write_bytes(files["train"] + b"x")
    with pytest.raises(InputError, match=f"train in .*expected md5 {cifar100.MD5['train']}, found {found}"):
        load("cifar100", selection)


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("part", ["train", "meta"])
def test_an_evil_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    marker = tmp_path / "marker"
    evil = pickle.dumps({b"data": Evil(marker)}, protocol=4)
    pickle.loads(evil)
    assert marker.exists()  # it would have run
    marker.unlink()
    selection = offer(cifar() | {part: evil}, tmp_path / "data", monkeypatch)
    with pytest.raises(InputError, match=rf"{part} in .* is refused \(it needs posix\.system\)"):
        load("cifar100", selection)
    assert not marker.exists()


def test_a_damaged_pickle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar()
    selection = offer(files | {"test": files["test"][:-20]}, tmp_path / "data", monkeypatch)
    with pytest.raises(InputError, match=r"test in .* is refused"):
        load("cifar100", selection)


def test_class_names_other_than_the_trees_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = python2_dict({"fine_label_names": ["apple"], "coarse_label_names": ["fish"]})
    selection = offer(cifar() | {"meta": meta}, tmp_path / "data", monkeypatch)
    with pytest.raises(InputError, match=r"meta in .* does not fit the tree of CIFAR-100"):
        load("cifar100", selection)


def test_a_superclass_other_than_the_trees_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar()
    table = pickle.loads(files["test"])
    table[b"coarse_labels"][5] = (table[b"coarse_labels"][5] + 1) % 20
    selection = offer(files | {"test": pickle.dumps(table, protocol=4)}, tmp_path / "data", monkeypatch)
    with pytest.raises(InputError, match=r"test in .* does not fit .*another superclass"):
        load("cifar100", selection)


def test_a_missing_field_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = offer(cifar() | {"train": pickle.dumps({b"data": 1})}, tmp_path / "data", monkeypatch)
    with pytest.raises(InputError, match=r"train in .*it has no fine_labels"):
        load("cifar100", selection)
