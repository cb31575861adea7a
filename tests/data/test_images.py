from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.core.photo import square
from dhocl.data.images import resize


def saved(image: Image.Image, kind: str = "PNG", **how: object) -> BytesIO:
    content = BytesIO()
    image.save(content, kind, **how)
    content.seek(0)
    return content


def stripes(*colours: str, edge: int = 40) -> Image.Image:
    """Squares side by side."""
    image = Image.new("RGB", (edge * len(colours), edge))
    for place, colour in enumerate(colours):
        image.paste(colour, (place * edge, 0, (place + 1) * edge, edge))
    return image


@pytest.mark.parametrize("turned", [False, True])
def test_the_middle_square_is_kept(turned: bool) -> None:
    image = stripes("red", "lime", "blue")
    image = image.rotate(90, expand=True) if turned else image
    pixels = square(saved(image), 20, "x")
    assert pixels.shape == (20, 20, 3)
    assert pixels.dtype == np.uint8
    assert (pixels[2:-2, 2:-2] == (0, 255, 0)).all()


def test_a_small_image_is_enlarged_and_a_large_photograph_shrunk() -> None:
    for edge in (3, 1500):
        pixels = square(saved(Image.new("RGB", (edge, edge + 2), (10, 200, 30)), "JPEG"), 24, "x")
        assert pixels.shape == (24, 24, 3)
        assert np.abs(pixels.astype(int) - (10, 200, 30)).max() < 6


MODES = {
    "L": (Image.new("L", (8, 8), 90), "PNG", (90, 90, 90)),
    "P": (Image.new("RGB", (8, 8), (9, 99, 200)).quantize(4), "PNG", (9, 99, 200)),
    "RGBA": (Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG", (255, 255, 255)),
    "LA": (Image.new("LA", (8, 8), (40, 255)), "PNG", (40, 40, 40)),
    "1": (Image.new("1", (8, 8), 1), "PNG", (255, 255, 255)),
    "CMYK": (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", (255, 0, 0)),
    "16 bit": (Image.fromarray(np.full((8, 8), 25700, dtype=np.uint16)), "PNG", (100, 100, 100)),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_becomes_rgb(mode: str) -> None:
    image, kind, colour = MODES[mode]
    assert np.abs(square(saved(image, kind), 8, "x").astype(int) - colour).max() <= 4


def test_the_camera_may_have_been_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned a quarter clockwise
    turned = stripes("red", "blue", edge=32).resize((64, 64))
    pixels = square(saved(turned, "JPEG", exif=exif, quality=95), 64, "x").astype(int)
    assert np.abs(pixels[:24] - (255, 0, 0)).max() < 20
    assert np.abs(pixels[40:] - (0, 0, 255)).max() < 20


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    whole = saved(stripes("red", "blue"), "JPEG").getvalue()
    for content in (b"", b"text", whole[:60], whole[: len(whole) // 2]):
        with pytest.raises(InputError, match=r"line 3: cat\.jpg is damaged or of an unknown image format"):
            square(BytesIO(content), 8, "line 3: cat.jpg")


def test_resizing_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 9, 3), dtype=np.uint8)
    whole = resize(pixels, 5)
    monkeypatch.setattr("dhocl.data.images.IMAGES_AT_ONCE", 2)
    assert np.array_equal(resize(pixels, 5), whole)
    assert resize(pixels[:0], 5).shape == (0, 5, 5, 3)


@pytest.mark.parametrize(("edge", "kind"), [(48, "PNG"), (1600, "JPEG")])
def test_rows_at_the_bottom_are_cut_off_also_of_a_photograph_decoded_at_a_fraction(edge: int, kind: str) -> None:
    image = Image.new("RGB", (edge, edge + 32), "red")
    image.paste("blue", (0, edge // 2, edge, edge))
    image.paste("white", (0, edge, edge, edge + 32))
    pixels = square(saved(image, kind), 24, "x", cut=32).astype(int)
    assert np.abs(pixels[:11] - (255, 0, 0)).max() < 20
    assert np.abs(pixels[13:-1] - (0, 0, 255)).max() < 20


def textured(edge: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (edge, edge, 3), dtype=np.uint8))


def test_only_photographs_of_3_5_times_the_size_are_decoded_at_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (saved(textured(edge), "JPEG").getvalue() for edge in (82, 84))
    drafted = [square(BytesIO(content), 24, "x") for content in (small, large)]
    monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.draft", lambda *_: None)
    whole = [square(BytesIO(content), 24, "x") for content in (small, large)]
    assert np.array_equal(drafted[0], whole[0]), "to the last bit"
    assert not np.array_equal(drafted[1], whole[1])


def test_a_photograph_of_very_many_pixels_is_decoded_at_a_part_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    content = saved(textured(200), "JPEG")
    (tmp_path / "a.jpg").write_bytes(content.getvalue())
    expected = square(content, 24, "x")
    for most in (10_000, 30_000):  # PIL refuses an image of twice as many, and warns of one with more
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        assert np.array_equal(square(tmp_path / "a.jpg", 24, "x"), expected)
        assert np.array_equal(square(BytesIO(content.getvalue()), 24, "x"), expected)
    assert not recwarn.list
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    for bomb in (saved(textured(200)), saved(textured(200), "JPEG", progressive=True)):
        with pytest.raises(InputError, match="x has too many pixels: scale it down"):
            square(bomb, 24, "x")


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "jpeg"])
def test_tiff_is_read(compression: str) -> None:
    pixels = square(saved(stripes("red", "lime", "blue"), "TIFF", compression=compression), 20, "x").astype(int)
    assert np.abs(pixels[2:-2, 2:-2] - (0, 255, 0)).max() < 30


def test_heic_is_read(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(stripes("red", "lime", "blue")).save(tmp_path / "a.heic", quality=90)
    for source in (tmp_path / "a.heic", BytesIO((tmp_path / "a.heic").read_bytes())):
        pixels = square(source, 20, "x").astype(int)
        assert np.abs(pixels[4:-4, 4:-4] - (0, 255, 0)).max() < 30


def test_without_its_library_heic_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
    with pytest.raises(InputError, match=r"a\.heic is a HEIC image, .*: pip install 'dhocl\[heic\]'"):
        square(tmp_path / "a.heic", 8, "a.heic")
