from __future__ import annotations

import struct
import time
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from dhocl.core.errors import InputError
from dhocl.service import images
from dhocl.service.images import (
    CHUNKS,
    SCAN,
    SCANS,
    SEGMENTS,
    SizeRefusedError,
    TypeRefusedError,
    decode,
    kind,
    markers,
)
from dhocl.service.served import as_array
from tests.helpers.machine import slowness
from tests.helpers.serving import encoded

MOST = 1_000_000
RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (40, 60, 3), dtype=np.uint8)


def pixels(content: bytes, size: int, most: int) -> np.ndarray:
    return as_array(images.pixels(content, size, most), size)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *more: bytes) -> bytes:
    """A PNG that says it is so large, whatever it holds."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IEND", b"")


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_the_three_formats(name: str) -> None:
    flat = np.full((40, 60, 3), (200, 100, 50), dtype=np.uint8)
    content = encoded(flat, name)
    assert kind(content) == name
    found = pixels(content, 32, MOST)
    assert found.shape == (32, 32, 3)
    assert np.abs(found.astype(int) - (200, 100, 50)).max() <= 4


@pytest.mark.parametrize("name", ["GIF", "BMP", "TIFF", "PPM", "ICO", "TGA"])
def test_other_formats_are_refused(name: str) -> None:
    with pytest.raises(TypeRefusedError, match="neither JPEG nor PNG nor WebP"):
        pixels(encoded(PHOTO, name), 32, MOST)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xd8", b"%PDF-1.7", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"RIFF"]
)
def test_what_is_no_image_is_refused(content: bytes) -> None:
    with pytest.raises(TypeRefusedError):
        pixels(content, 32, MOST)


@pytest.mark.parametrize("magic", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBP"])
def test_a_magic_number_alone_is_damaged(magic: bytes) -> None:
    for tail in (b"", b"\0" * 100, RNG.bytes(1000), encoded(PHOTO, "GIF")):
        with pytest.raises(InputError, match="damaged"):
            pixels(magic + tail, 32, MOST)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_truncated_images_are_refused(name: str) -> None:
    content = encoded(PHOTO, name)
    for share in (0.1, 0.5, 0.9):
        with pytest.raises(InputError, match="damaged"):
            pixels(content[: int(share * len(content))], 32, MOST)


def test_a_bomb_is_seen_by_its_header() -> None:
    rows = zlib.compress(bytes(10_000_000), 9)  # 10 kB that would become much more
    assert len(rows) < 20_000
    for width, height in [(30_000, 30_000), (1_000_001, 1), (2**31 - 1, 2**31 - 1), (1001, 1000)]:
        with pytest.raises(SizeRefusedError, match="pixels"):
            pixels(png(width, height, chunk(b"IDAT", rows)), 32, MOST)
    with pytest.raises(SizeRefusedError):
        pixels(encoded(np.zeros((1100, 1000, 3), dtype=np.uint8), "WEBP", lossless=True), 32, MOST)


def test_a_bomb_in_the_text_is_refused() -> None:
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    with pytest.raises(InputError, match="damaged"):
        pixels(png(10, 10, text), 32, MOST)


def test_what_hangs_behind_an_image_is_never_looked_at() -> None:
    content = encoded(PHOTO, "JPEG")
    polyglot = content + b"PK\x03\x04" + encoded(np.zeros((2000, 2000), dtype=np.uint8), "GIF")
    assert np.array_equal(pixels(polyglot, 32, MOST), pixels(content, 32, MOST))
    found, small = decode(polyglot, 32, MOST)
    assert found == images.pixels(content, 32, MOST)
    assert kind(small) == "JPEG"
    assert b"PK\x03\x04" not in small


def test_images_are_put_upright() -> None:
    """Orientation 6: the first row of what is stored is the right side."""
    array = np.zeros((40, 40, 3), dtype=np.uint8)
    array[:20] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    found = pixels(encoded(array, "JPEG", exif=exif.tobytes(), quality=95), 32, MOST)
    assert found[:, 20:].min() > 200
    assert found[:, :12].max() < 50


def test_a_thumbnail_tells_nothing_but_the_picture() -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at a secret place"
    file = BytesIO(decode(encoded(PHOTO, "JPEG", exif=exif.tobytes()), 32, MOST).thumbnail)
    assert b"secret" not in file.getvalue()
    with Image.open(file) as image:
        assert (image.format, image.size, dict(image.getexif())) == ("JPEG", (96, 96), {})


def test_a_large_thumbnail_shows_what_the_model_sees() -> None:
    content = encoded(PHOTO, "PNG")
    found, small = decode(content, 128, MOST)
    with Image.open(BytesIO(small)) as image:
        assert image.size == (128, 128)
        assert np.abs(np.asarray(image, dtype=float) - as_array(found, 128)).mean() < 20


@pytest.mark.parametrize("shape", [(1, 100_000), (100_000, 1), (1, 1)])
def test_odd_shapes(shape: tuple[int, int]) -> None:
    assert pixels(encoded(np.full((*shape, 3), 9, dtype=np.uint8)), 32, MOST).mean() == 9


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
def test_only_the_decoder_of_its_kind_is_ever_asked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked, open_ = [], Image.open
    monkeypatch.setattr(Image, "open", lambda *given, **more: asked.append(more["formats"]) or open_(*given, **more))
    pixels(encoded(PHOTO, name), 32, MOST)
    assert asked == [[name]]


def scans(content: bytes) -> int:
    return list(markers(content)).count(SCAN)


def test_scans_are_counted_without_what_segments_and_attachments_hold() -> None:
    baseline = encoded(PHOTO, "JPEG")
    assert scans(baseline) == 1
    comment = encoded(PHOTO, "JPEG", comment=40 * b"\xff\xda")
    assert scans(comment + 40 * b"\xff\xda") == 1
    assert scans(baseline[:2] + 5 * b"\xff" + baseline[2:]) == 1
    progressive = encoded(PHOTO, "JPEG", progressive=True)
    assert scans(progressive) == 10
    last = progressive[progressive.rindex(b"\xff\xda") : -2]
    pixels(progressive[:-2] + (SCANS - 10) * last + progressive[-2:], 32, MOST)
    with pytest.raises(SizeRefusedError, match="more than 32 scans"):
        pixels(progressive[:-2] + (SCANS - 9) * last + progressive[-2:], 32, MOST)


@pytest.mark.parametrize("between", [b"", b"junk", b"\xff\x00", b"\xff\xd3", b"\xff\x01", b"\xff\xff\xff"])
def test_scans_can_not_be_hidden_from_the_count(between: bytes) -> None:
    progressive = encoded(PHOTO, "JPEG", progressive=True)
    last = progressive[progressive.rindex(b"\xff\xda") : -2]
    assert scans(progressive[:-2] + 40 * (between + last) + progressive[-2:]) == 50


def test_a_lack_of_memory_says_nothing_about_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be refused for good."""

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    content = encoded(np.zeros((32, 32, 3), dtype=np.uint8))
    monkeypatch.setattr("dhocl.core.photo.ImageOps.fit", no_memory)
    with pytest.raises(MemoryError):
        pixels(content, 16, MOST)


def test_metadata_in_many_parts_is_refused_at_once() -> None:
    photo, drawing = encoded(PHOTO, "JPEG"), encoded(PHOTO, "PNG")
    segment, text = b"\xff\xe1\x00\x20Exif\0\0" + bytes(24), chunk(b"tEXt", b"a\0b")

    def files(count: int) -> tuple[bytes, bytes]:
        """With so many parts after the start of a JPEG and after the header of a PNG."""
        return photo[:2] + count * segment + photo[2:], drawing[:33] + count * text + drawing[33:]

    for content in (files(SEGMENTS - 20)[0], files(CHUNKS - 20)[1]):
        pixels(content, 32, MOST)
    began = time.process_time()
    for content, what in zip(files(400_000), ("segments", "chunks"), strict=True):
        with pytest.raises(SizeRefusedError, match=f"more than [0-9]+ {what}"):
            pixels(content, 32, MOST)
    assert time.process_time() - began < 2 * slowness()


ODD = {
    "16-bit colours": (2, np.array([25700, 51400, 257])),
    "16-bit grey and alpha": (4, np.array([25700, 65535])),
    "16-bit colours and alpha": (6, np.array([25700, 51400, 257, 65535])),
    "16-bit grey": (0, np.array([25700])),
}
SEEN = {2: (100, 200, 1), 4: (100, 100, 100), 6: (100, 200, 1), 0: (100, 100, 100)}


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize("name", ODD)
def test_16_bits_are_scaled(name: str, interlaced: int) -> None:
    colours, value = ODD[name]
    row = b"\0" + 8 * value.astype(">u2").tobytes()
    if interlaced:  # seven passes over an image of 8 x 8: their sizes are 1x1, 1x1, 2x1, 2x2, 4x2, 4x4, 8x4
        sizes = [(1, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4)]
        data = b"".join(h * (b"\0" + w * value.astype(">u2").tobytes()) for w, h in sizes)
    else:
        data = 8 * row
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, colours, 0, 0, interlaced))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    assert np.abs(pixels(content, 8, MOST).astype(int) - SEEN[colours]).max() <= 1


@pytest.mark.parametrize("name", ["PNG", "WEBP"])
def test_of_an_animation_the_first_frame_is_seen(name: str) -> None:
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("red", "lime", "blue")]
    file = BytesIO()
    frames[0].save(file, name, save_all=True, append_images=frames[1:], lossless=True)
    assert (pixels(file.getvalue(), 32, MOST) == (255, 0, 0)).all()


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "more", [{"icc_profile": b"\xff" * 5000}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08" + b"\xff" * 200}]
)
def test_damaged_metadata_change_nothing(name: str, more: dict[str, bytes]) -> None:
    assert np.array_equal(pixels(encoded(PHOTO, name, **more), 32, MOST), pixels(encoded(PHOTO, name), 32, MOST))


def test_cmyk_is_seen_in_its_colours() -> None:
    file = BytesIO()
    Image.new("CMYK", (40, 40), (0, 255, 255, 0)).save(file, "JPEG")
    assert np.abs(pixels(file.getvalue(), 32, MOST).astype(int) - (255, 0, 0)).max() <= 4
