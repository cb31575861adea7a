"""Small data sets in the published layouts, as archives of each kind or as a folder."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from dhocl.data.lineage import bundled

KINDS = ("folder", ".tar.gz", ".tgz", ".tar.xz", ".tar")
Files = dict[str, bytes]


def pack(files: Mapping[str, bytes], data: Path, root: str, kind: str) -> Path:
    """The files below `root`, in the folder `data`; archives hold them in reverse order."""
    data.mkdir(exist_ok=True)
    if kind == "folder":
        for name, content in files.items():
            path = data / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return data / root
    archive = data / f"{root}{kind}"
    compression = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".tar": ""}[kind]
    with tarfile.open(archive, f"w:{compression}") as tar:  # type: ignore[call-overload]
        for name, content in reversed(files.items()):
            add(tar, f"{root}/{name}", content)
    return archive


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **how: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in how.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content))


def python2_dict(fields: Mapping[str, list[str]]) -> bytes:
    """A dictionary of lists as Python 2 pickled it, with its 8 bit strings."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    items = b"".join(text(key) + b"](" + b"".join(map(text, values)) + b"e" for key, values in fields.items())
    return b"\x80\x02}(" + items + b"u."


def cifar(per_class: int = 2, seed: int = 0) -> Files:
    rows = bundled("cifar100", ("superclass", "class"))
    coarse = sorted({row["superclass"] for row in rows})
    rng = np.random.default_rng(seed)
    fine = {"train": rng.permutation(np.repeat(np.arange(100), per_class)), "test": rng.permutation(100)}
    files = {"meta": python2_dict({"fine_label_names": [row["class"] for row in rows], "coarse_label_names": coarse})}
    for part, classes in fine.items():
        table = {
            b"data": rng.integers(0, 256, (len(classes), 3072), dtype=np.uint8),
            b"fine_labels": classes.tolist(),
            b"coarse_labels": [coarse.index(rows[number]["superclass"]) for number in classes],
        }
        files[part] = pickle.dumps(table, protocol=4)
    return files


def jpeg(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(content, "JPEG", quality=95)
    return content.getvalue()


def cub_colour(species: int, test: bool) -> tuple[int, int, int]:
    return (species, 255 - species, 200 if test else 100)


def cub() -> Files:
    """A training and a test image of each species, told by their colours."""
    names = [row["class"] for row in bundled("cub200", ("class",))]
    images = [f"{name}/{part}.jpg" for name in names for part in ("a", "b")]
    lists = {
        "classes.txt": names,
        "images.txt": images,
        "image_class_labels.txt": [str(row // 2 + 1) for row in range(len(images))],
        "train_test_split.txt": [str((row + 1) % 2) for row in range(len(images))],
    }
    files = {
        file: "".join(f"{row} {value}\n" for row, value in enumerate(values, 1)).encode()
        for file, values in lists.items()
    }
    for row, name in enumerate(images):
        files[f"images/{name}"] = jpeg(24, 16, cub_colour(row // 2, row % 2 == 1))
    return files


AIRCRAFT = {  # variant -> manufacturer, family
    "707-320": ("Boeing", "Boeing 707"),
    "737-200": ("Boeing", "Boeing 737"),
    "737-300": ("Boeing", "Boeing 737"),
    "DC-3": ("Douglas Aircraft Company", "DC-3"),
}


def aircraft_colour(variant: int, test: bool) -> tuple[int, int, int]:
    return (60 * variant, 250 - 60 * variant, 200 if test else 100)


def aircraft() -> Files:
    """Two training images and a test image of each variant, told by their colours, with a white banner below."""
    files, lists = {}, {}
    for part, count in (("trainval", 2), ("test", 1)):
        for variant, (name, above) in enumerate(AIRCRAFT.items()):
            for copy in range(count):
                image = f"{variant}{copy}{part == 'test':05}"
                for level, value in zip(("manufacturer", "family", "variant"), (*above, name), strict=True):
                    lists.setdefault(f"data/images_{level}_{part}.txt", []).append(f"{image} {value}\n")
                photograph = Image.new("RGB", (32, 16 + 20), "white")
                photograph.paste(aircraft_colour(variant, part == "test"), (0, 0, 32, 16))
                content = io.BytesIO()
                photograph.save(content, "JPEG", quality=95, subsampling=0)
                files[f"data/images/{image}.jpg"] = content.getvalue()
    return files | {name: "".join(lines).encode() for name, lines in lists.items()}


RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "name")
SPECIES = (  # two genera Morus, one of them with a species of the same name as the other's; a class named as a phylum
    ("Animalia", "Chordata", "Aves", "Suliformes", "Sulidae", "Morus", "alba"),
    ("Animalia", "Chordata", "Aves", "Suliformes", "Sulidae", "Sula", "Sula sula"),
    ("Plantae", "Tracheophyta", "Tracheophyta", "Rosales", "Moraceae", "Morus", "alba"),
    ("Plantae", "Tracheophyta", "Tracheophyta", "Rosales", "Moraceae", "Morus", "Morus nigra"),
)


def inaturalist(year: int) -> Files:
    """A training and a validation image of each species, told by their colours; ids count from 7."""
    categories = [{"id": 7 + row} | dict(zip(RANKS, names, strict=True)) for row, names in enumerate(SPECIES)]
    files: Files = {"categories.json": json.dumps(categories).encode()}
    for part, blue in (("train", 100), ("val", 200)):
        images = [
            {"id": 50 * blue + row, "file_name": f"train_val{year}/{names[0]}/{7 + row}/{part}.jpg"}
            for row, names in enumerate(SPECIES)
        ]
        shown = [{"id": row, "image_id": 50 * blue + row, "category_id": 7 + row} for row in range(len(SPECIES))]
        hidden = [{"id": category["id"], "name": "hidden"} for category in categories]
        # annotations need not come in the order of the images
        listed = {"images": images, "annotations": shown[::-1], "categories": hidden}
        files[f"{part}{year}.json"] = json.dumps(listed).encode()
        for row, image in enumerate(images):
            files[str(image["file_name"])] = jpeg(24, 16, (60 * row, 255 - 60 * row, blue))
    return files


NOUNS = """\
  1 This software and database is being provided to you, the LICENSEE
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | what is
00000002 03 n 01 physical_entity 0 001 @ 00000001 n 0000 | an entity | with a bar in its gloss
00000003 05 n 02 animal 0 beast 0 001 @ 00000002 n 0000 | a living thing
00000004 06 n 01 artifact 0 001 @ 00000002 n 0000 | a made thing
00000005 05 n 01 bird 0 003 @ 00000003 n 0000 %p 00000001 n 0000 #m 00000001 n 0000 | it flies
00000006 05 n 01 dog 0 001 @ 00000003 n 0000 | it barks
00000007 05 n 01 crane 4 001 @ 00000005 n 0000 | a wading bird
00000008 05 n 01 wren 0 001 @ 00000005 n 0000 | a small bird
00000009 05 n 01 Airedale 0 002 @ 00000006 n 0000 @ 00000003 n 0000 | a dog, and directly an animal
00000010 06 n 01 crane 5 001 @ 00000004 n 0000 | a machine
00000011 06 n 01 Titanic 0 001 @i 00000015 n 0000 | it sank
00000012 05 n 01 corvine_bird 0 001 @ 00000005 n 0000 | a kind of bird
00000013 05 n 01 raven 0 001 @ 00000012 n 0000 | it is black
00000014 05 n 01 jay 0 001 @ 00000012 n 0000 | it is not
00000015 06 n 02 ship 0 boat 0 001 @ 00000004 n 0000 | it floats
00000016 06 n 01 yawl 0 001 @ 00000015 n 0000 | it has two masts
"""
WNIDS = ("n00000007", "n00000008", "n00000009", "n00000010", "n00000011", "n00000013", "n00000014", "n00000016")


def imagenet(parts: tuple[str, ...] = ("train", "val")) -> Files:
    """Two images of each class, told by their colours, and WordNet."""
    files: Files = {"dict/data.noun": NOUNS.encode()}
    for part in parts:
        for row, wnid in enumerate(WNIDS):
            for copy in range(2):
                files[f"{part}/{wnid}/{wnid}_{copy}.JPEG"] = jpeg(16, 16, (30 * row, 90, 200 if part == "val" else 100))
    return files


def lay(files: Mapping[str, bytes], folder: Path) -> Path:
    """The files, directly in a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
