"""ImageNet-H: images of ImageNet, in folders named by WordNet ids, with the tree of WordNet.

Of several paths from a synset to the root the shortest is used. Nodes that do not separate classes are removed: the
1,000 classes of ILSVRC get 13 levels and 370 inner nodes. Paths of unequal length are padded.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from dhocl.core.errors import InputError
from dhocl.core.rng import Rng
from dhocl.data.archive import Archive, locate
from dhocl.data.dataset import Selection, Source, Table
from dhocl.data.files import Files
from dhocl.data.lineage import grow, readable
from dhocl.data.padding import branching, pad
from dhocl.data.wordnet import Synset, lineage, read_nouns

SIZE = 224
ORIGIN = "https://image-net.org/download.php"
WORDNET = "https://wordnetcode.princeton.edu/3.0/WordNet-3.0.tar.gz"
WNID = re.compile(r"n\d{8}")
SUFFIXES = (".jpeg", ".jpg", ".png")


def read(selection: Selection, random: bool = True) -> Source:
    """`random`: pad by repeating ancestors at random levels (by seed), else by repeating the parents of leaves."""
    data = selection.data
    if data is None or not (data / "train").is_dir():
        raise InputError(
            f"`data` must be a folder with train/, val/ and WordNet's dict/; got {data}: the images are at {ORIGIN}"
        )
    train = _images(data, "train")
    test = _images(data, "val") if (data / "val").is_dir() else {}
    if unknown := test.keys() - train.keys():
        raise InputError(f"{data / 'val' / min(unknown)} has no training images: add {data / 'train' / min(unknown)}")
    nouns = _nouns(data)
    paths = branching([_path(wnid, nouns) for wnid in train])
    padded = pad(paths, Rng(selection.seed, 0x9AD) if random else None)
    names = _names({wnid for path in paths for wnid in path}, nouns)
    tree, leaves = grow([names[wnid] for wnid in path] for path in padded)
    node = dict(zip(train, leaves.tolist(), strict=True))
    size = selection.image_size or SIZE
    tables = [
        Table(
            np.array([node[wnid] for wnid, files in part.items() for _ in files], dtype=np.int64),
            Files(data, [file for files in part.values() for file in files], size),
        )
        for part in (train, test)
    ]
    levels = tuple(f"level {number}" for number in range(len(padded[0])))
    return Source("imagenet_h" if random else "imagenet_h_fixed", levels, tree, tables[0], tables[1], flip=True)


def _images(data: Path, part: str) -> dict[str, list[str]]:
    """Class -> its files, both sorted."""
    classes = sorted(folder.name for folder in os.scandir(data / part) if WNID.fullmatch(folder.name))
    if not classes:
        raise InputError(f"{data / part} has no folder like n01440764: sort the images into folders by WordNet id")
    found = {}
    for wnid in classes:
        names = sorted(file.name for file in os.scandir(data / part / wnid) if file.name.lower().endswith(SUFFIXES))
        if not names:
            raise InputError(f"{data / part / wnid} has no image: extract it again, or delete it")
        found[wnid] = [f"{part}/{wnid}/{name}" for name in names]
    return found


def _nouns(data: Path) -> dict[int, Synset]:
    inside = (data / "dict").is_dir()
    archive = Archive(data / "dict", "dict") if inside else locate(data, "WordNet-3.0", WORDNET)
    name = "data.noun" if inside else "dict/data.noun"
    ((_, content),) = archive.read([name])
    return read_nouns(content, f"{name} in {archive.path}")


def _path(wnid: str, nouns: Mapping[int, Synset]) -> tuple[str, ...]:
    return tuple(f"n{offset:08}" for offset in lineage(int(wnid[1:]), nouns))


def _names(wnids: Iterable[str], nouns: Mapping[int, Synset]) -> dict[str, str]:
    """The first word of each synset, with the id where several share it, such as crane (bird or machine)."""
    words = {wnid: readable(nouns[int(wnid[1:])].word) for wnid in wnids}
    shared = Counter(words.values())
    return {wnid: word if shared[word] == 1 else f"{word} ({wnid})" for wnid, word in words.items()}
