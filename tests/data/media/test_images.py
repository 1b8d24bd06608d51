"""Pictures from bytes: formats, colors and sizes as they should be; what is broken or gigantic is said."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qkv.data.media.images import _array, decode, denormalized, depth, fitted, normalized, read, resized, statistics
from qkv.data.source import Skipped


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (channels, height, width), np.uint8)


COLORS = noise(5, 7)
RGB = Image.fromarray(COLORS.transpose(1, 2, 0))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_give_their_pixels(kind: str) -> None:
    found = decode(saved(RGB, kind))
    assert isinstance(found, np.ndarray) and found.dtype == np.uint8
    np.testing.assert_array_equal(found, COLORS)


def test_colors_become_gray_and_gray_colors() -> None:
    gray = decode(saved(RGB), "gray")
    assert not isinstance(gray, Skipped)
    np.testing.assert_allclose(gray[0], np.tensordot((0.299, 0.587, 0.114), COLORS, 1), atol=1)
    again = decode(saved(Image.fromarray(gray[0])), "rgb")
    np.testing.assert_array_equal(again, np.repeat(gray, 3, 0))


def test_what_is_transparent_lies_on_white() -> None:
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (255, 0, 0, 255))
    np.testing.assert_array_equal(decode(saved(clear)), np.array([[[255, 255]], [[255, 0]], [[255, 0]]]))


def test_sixteen_bits_become_eight_and_measurements_are_no_picture() -> None:
    deep = Image.fromarray(np.array([[0, 256 * 200 + 9]], np.uint16))
    np.testing.assert_array_equal(decode(saved(deep), "gray"), np.array([[[0, 200]]]))
    assert "mode F" in str(decode(saved(Image.fromarray(np.ones((2, 2), np.float32)), "TIFF")))


def test_files_of_sixteen_bits_that_use_twelve() -> None:
    deep = Image.fromarray(np.array([[0, 16 * 200 + 9, 16 * 255]], np.uint16))
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode(saved(deep, kind), "gray", bits=12), np.array([[[0, 200, 255]]]))
        with pytest.warns(
            UserWarning, match=r"folder/x\.png has 16 bits a pixel and no value above 4,080.*data\.bits=12"
        ):
            dark = decode(saved(deep, kind), "gray", where=f"{kind} folder/x.png")
        np.testing.assert_array_equal(dark, np.array([[[0, 12, 15]]]))
    shallow = decode(saved(Image.fromarray(np.array([[3, 255]], np.uint16))), "gray", bits=8)
    np.testing.assert_array_equal(shallow, np.array([[[3, 255]]]))
    with pytest.warns(UserWarning, match=r"up to 51,209, which are cut off at 4,095.*data\.bits=16"):
        bright = decode(saved(Image.fromarray(np.array([[0, 256 * 200 + 9]], np.uint16))), "gray", bits=12)
    np.testing.assert_array_equal(bright, np.array([[[0, 255]]]))
    portable = b"P5\n2 1\n4095\n" + np.array([0, 16 * 200], ">u2").tobytes()
    np.testing.assert_array_equal(decode(portable, "gray"), np.array([[[0, 200]]]))


def test_how_many_of_sixteen_bits_are_used_is_seen_of_several_files() -> None:
    def file(value: int) -> bytes:
        return saved(Image.fromarray(np.array([[0, value]], np.uint16)))

    assert depth([file(100), file(4000)]) == 12
    assert depth([file(100), file(4000), file(4100)]) == 16
    assert depth([saved(RGB), b"no picture"]) is None


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def deep_png(kind: int, values: list[list[int]], *chunks: bytes) -> bytes:
    """A PNG of one line of pixels of 16 bits a channel."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", len(values), 1, 16, kind, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + np.array(values, ">u2").tobytes()))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + pixels + chunk(b"IEND", b"")


def test_colors_of_sixteen_bits() -> None:
    found = decode(deep_png(2, [[0x0100, 0x0200, 0xFF00], [0, 0, 0]]))
    np.testing.assert_array_equal(found, np.array([[[1, 0]], [[2, 0]], [[255, 0]]]))
    assert "use 12 at most" in str(decode(deep_png(2, [[100, 4000, 0], [1, 2, 3]])))
    assert "use 12 at most" not in str(decode(deep_png(2, [[0, 0, 0]])))
    clear = decode(deep_png(0, [[0x6400], [0xFA00]], chunk(b"tRNS", b"\x64\x00")), "gray")
    np.testing.assert_array_equal(clear, np.array([[[255, 250]]]))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV", "LA", "PA", "RGBA", "La", "RGBa"])
def test_every_mode_gives_the_same_gray(mode: str) -> None:
    """One that Pillow can have, whether or not a file can: 0, and what is nearest to 255."""
    plain = Image.fromarray(np.array([[0, 255]], np.uint8))
    between = {"La": "LA", "RGBa": "RGBA", "PA": "P", "HSV": "RGB"}.get(mode, mode)
    image = plain.convert(between).convert(mode)
    np.testing.assert_allclose(_array(image, "gray"), np.array([[[0, 255]]]), atol=1)


def test_a_palette_with_transparency_lies_on_white() -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 255, 0])
    for kind in ("PNG", "GIF"):
        found = decode(saved(image, kind, transparency=0))
        np.testing.assert_array_equal(found, np.array([[[255, 0]], [[255, 255]], [[255, 0]]]))


def test_a_photograph_stands_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° with the clock
    found = decode(saved(RGB, "PNG", exif=exif))
    np.testing.assert_array_equal(found, np.rot90(COLORS, -1, (1, 2)))


def test_broken_files_say_what_is_wrong() -> None:
    whole = saved(Image.fromarray(noise(40, 40).transpose(1, 2, 0)), "JPEG")
    assert decode(whole[: len(whole) // 2]) == "truncated"
    assert decode(b"") == "empty"
    assert decode(b"<html>not found</html>") == "no picture in a known format"
    assert isinstance(decode(saved(RGB)[:40]), Skipped)


@given(st.binary(max_size=40), st.integers(0, 200))
def test_no_bytes_are_an_error(tail: bytes, keep: int) -> None:
    for kind in ("PNG", "GIF"):
        found = decode(saved(RGB, kind)[:keep] + tail)
        assert isinstance(found, Skipped | np.ndarray)


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and holds nothing."""

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
def test_bombs_are_refused_by_their_header(side: int) -> None:
    assert decode(bomb(side, side)) == "larger than 67,108,864 pixels"


def test_one_line_of_millions_of_pixels_is_refused_by_its_header() -> None:
    for sides in ((64 << 20, 1), (1, 1 << 20)):
        assert decode(bomb(*sides)) == "larger than 65,535 pixels on a side"


def test_what_a_name_says_is_not_what_is_in_a_file() -> None:
    """DDS of a kind that Pillow does not know raises what no other format does; EPS would start Ghostscript."""
    header = b"DDS " + struct.pack("<7I", 124, 0x1007, 4, 4, 0, 0, 0) + bytes(44)
    assert decode(header + struct.pack("<2I4s5I", 32, 4, b"ABCD", 0, 0, 0, 0, 0) + bytes(200)) == "damaged"
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    assert decode(postscript) == "no picture in a known format"


def test_a_limit_of_ones_own() -> None:
    assert decode(saved(RGB), most=34) == "larger than 34 pixels"
    assert not isinstance(decode(saved(RGB), most=35), Skipped)


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(saved(RGB)[:30])
    with pytest.raises(ValueError, match=r"a\.png' can't be read as a picture: it is "):
        read(tmp_path / "a.png")
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "b.png")
    with pytest.raises(ValueError, match="is a folder"):
        read(tmp_path)


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_nearest_keeps_values_and_filters_average() -> None:
    squares = np.array([[[0, 200], [200, 0]]], np.uint8)
    np.testing.assert_array_equal(resized(squares, (4, 4), "nearest"), squares.repeat(2, 1).repeat(2, 2))
    assert resized(np.tile(squares, (3, 8, 8)), (1, 1))[0, 0, 0] == pytest.approx(100, abs=2)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12), st.integers(1, 12))
def test_every_picture_fits_every_size(height: int, width: int, rows: int, columns: int) -> None:
    pixels = noise(height, width)
    for fit in ("crop", "stretch", "pad"):
        assert fitted(pixels, (rows, columns), fit).shape == (3, rows, columns)


def test_a_crop_is_the_middle_and_padding_is_around() -> None:
    pixels = noise(4, 8)
    np.testing.assert_array_equal(fitted(pixels, (4, 4)), pixels[:, :, 2:6])
    padded = fitted(pixels, (8, 8), "pad", fill=7)
    np.testing.assert_array_equal(padded[:, 2:6], pixels)
    assert (padded[:, :2] == 7).all() and (padded[:, 6:] == 7).all()


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_normalized_pictures_have_mean_0_and_deviation_1_and_come_back() -> None:
    pictures = [noise(6, 6), noise(3, 9) // 2]
    mean, std = statistics(pictures)
    numbers = np.concatenate([normalized(p, mean, std).reshape(3, -1) for p in pictures], 1)
    np.testing.assert_allclose(numbers.mean(1), 0, atol=1e-3)
    np.testing.assert_allclose(numbers.std(1), 1, atol=1e-3)
    np.testing.assert_array_equal(denormalized(normalized(COLORS, mean, std), mean, std), COLORS)
    assert normalized(COLORS[None], mean, std).dtype == np.float32
