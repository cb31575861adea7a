from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from dhocl import Classifier, InputError
from dhocl.checks import pictures
from dhocl.methods import METHODS
from dhocl.nn.backbones import load

DIM = 16
ON_FEATURES = {"amber", "acil", "gacil", "ncm", "slda", "ranpac"}


def examples(n: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Clusters of vectors, labelled at mixed levels."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 4, n)
    vectors = np.eye(DIM)[leaves] + np.eye(DIM)[4 + leaves // 2] + 0.1 * rng.standard_normal((n, DIM))
    names = [("abcd"[leaf], "species") if rng.random() < 0.7 else ("xy"[leaf // 2], "kind") for leaf in leaves]
    return vectors, names


def small(method: str = "amber", **more: object) -> Classifier:
    return Classifier(["kind", "species"], method=method, backbone=f"features:{DIM}", batch=8, **more)


@pytest.mark.parametrize("method", METHODS)
def test_methods_on_frozen_features_learn_vectors_and_others_refuse(method: str, tmp_path: Path) -> None:
    if method not in ON_FEATURES:
        with pytest.raises(InputError, match=r"trains a network on images|no attention and no convolution"):
            small(method)
        return
    classifier = small(method, settings={"expansion": 64} if method in ("gacil", "ranpac") else {})
    for seed in range(3):
        classifier.learn_features(*examples(40, seed))
    for child, parent in zip("abcd", "xxyy", strict=True):
        classifier.link((child, "species"), (parent, "kind"))
    vectors = np.eye(DIM)[:4] + np.eye(DIM)[[4, 4, 5, 5]]
    found = classifier.predict_features(vectors)
    assert [" ".join(p.path.values()) for p in found] == ["x a", "x b", "y c", "y d"]
    assert classifier.evaluate(vectors, [(name, "species") for name in "abcd"]).ranks[1].accuracy == 100
    classifier.save(tmp_path / "m")
    assert Classifier.load(tmp_path / "m").predict_features(vectors) == found


def test_vectors_of_a_network_are_as_good_as_its_images() -> None:
    rng = np.random.default_rng(0)
    leaves = rng.integers(0, 4, 64).tolist()
    x, labels = pictures(leaves, rng), [("abcd"[leaf], "species") for leaf in leaves]
    with torch.no_grad():
        vectors = load("tiny")(x)[0]
    images = Classifier(["kind", "species"], method="acil", backbone="tiny", image_size=32)
    features = Classifier(["kind", "species"], method="acil", backbone="features:64")
    images.learn(x, labels)
    features.learn_features(vectors, labels)
    for a, b in zip(images.predict(x), features.predict_features(vectors), strict=True):
        assert a.path == b.path
        assert a.probability == pytest.approx(b.probability, abs=1e-4)


def test_vectors_come_from_files(tmp_path: Path) -> None:
    vectors, names = examples(20)
    np.save(tmp_path / "v.npy", vectors)
    first, second = small("acil"), small("acil")
    first.learn_features(vectors, names)
    second.learn_features(tmp_path / "v.npy", names)
    assert first.predict_features(vectors) == second.predict_features(str(tmp_path / "v.npy"))
    assert first.predict_features(torch.from_numpy(vectors)) == first.predict_features(vectors.tolist())


def test_vectors_come_from_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors, names = examples(20)
    classifier = small("acil")
    classifier.learn_features(vectors, names)
    expected = classifier.predict_features(vectors)
    rows = vectors.astype(np.float32)
    lists = {"id": list(range(20)), "embedding": rows.tolist()}
    columns = {"id": list(range(20))} | {f"f{place:02}": rows[:, place] for place in range(DIM)}
    for number, content in enumerate((lists, columns)):
        parquet.write_table(arrow.table(content), tmp_path / f"{number}.parquet")
        assert classifier.predict_features(tmp_path / f"{number}.parquet") == expected
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="damaged or no Parquet file"):
        classifier.predict_features(tmp_path / "bad.parquet")


def test_mistakes_are_named(tmp_path: Path) -> None:
    classifier = small("acil")
    classifier.learn_features(*examples(8))
    image = np.zeros((32, 32, 3), np.uint8)
    (tmp_path / "bad.npy").write_bytes(b"text")
    for given, message in [
        (np.zeros((2, 3)), r"has shape \(2, 3\): expected vectors of 16 numbers each"),
        (np.zeros(16), r"has shape \(16,\)"),
        (np.zeros((0, 16)), "is empty"),
        (np.full((1, 16), np.nan), "NaN"),
        ([["a"] * 16], "does not hold numbers"),
        (tmp_path / "none.npy", "there is no file"),
        (tmp_path / "bad.npy", "neither a .npy array nor a .parquet file"),
    ]:
        with pytest.raises(InputError, match=message):
            classifier.predict_features(given)
    if importlib.util.find_spec("pyarrow") is None:
        (tmp_path / "v.parquet").write_bytes(b"")
        with pytest.raises(InputError, match=r"pip install 'dhocl\[parquet\]'"):
            classifier.predict_features(tmp_path / "v.parquet")
    with pytest.raises(InputError, match="takes feature vectors, not images"):
        classifier.predict(image)
    with pytest.raises(InputError, match="this model takes images"):
        Classifier(["species"], method="acil", backbone="tiny").learn_features([[1.0]], [("a", "species")])
    with pytest.raises(InputError, match="features:many: give the length of a vector"):
        Classifier(["species"], backbone="features:many")
    with pytest.raises(InputError, match="takes vectors of 16 numbers, got images"):
        classifier.model.beliefs(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
