"""Images of every kind of pixel come out right to 1/255, or are refused in a line that names the file."""

import os
import struct
import tarfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from nas_lightning.data import ImageFolder
from nas_lightning.data.files import ImageFile, decode, find_images
from nas_lightning.errors import InputError

RAMP = np.linspace(0, 1, 64).reshape(8, 8)  # every brightness, between black and white


def png(pixels: np.ndarray, color: int) -> bytes:
    """A PNG file, written by hand: 16 bits a channel; color type 0 is gray, 2 is RGB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def read(path) -> np.ndarray:
    return np.asarray(decode(ImageFile(str(path)))).astype(float)


def write(path, image: Image.Image, **options) -> None:
    image.save(path, **options)


def gray_of_16_bits(path):
    path.write_bytes(png(np.rint(RAMP * 65_535), 0))


def color_of_16_bits(path):
    path.write_bytes(png(np.rint(np.stack([RAMP] * 3, axis=-1) * 65_535), 2))


def gray_of_16_bits_as_tiff(path):
    write(path, Image.fromarray(np.rint(RAMP * 65_535).astype(np.uint16)), format="TIFF")


def floats(path):
    write(path, Image.fromarray(RAMP.astype(np.float32)), format="TIFF")


def gray_of_8_bits(path):
    write(path, Image.fromarray(np.rint(RAMP * 255).astype(np.uint8)), format="PNG")


def palette(path):
    gray = Image.fromarray(np.rint(RAMP * 255).astype(np.uint8))
    write(path, gray.convert("P"), format="PNG")


def ink(path):
    """CMYK without color: black ink alone, as much as is dark."""
    dark = np.rint((1 - RAMP) * 255).astype(np.uint8)
    nothing = np.zeros_like(dark)
    write(path, Image.fromarray(np.stack([nothing, nothing, nothing, dark], -1), "CMYK"), format="TIFF")


def transparent(path):
    gray = np.rint(RAMP * 255).astype(np.uint8)
    write(path, Image.fromarray(np.stack([gray, np.full_like(gray, 9)], -1), "LA"), format="PNG")


KINDS = [
    *(gray_of_16_bits, color_of_16_bits, gray_of_16_bits_as_tiff, floats),
    *(gray_of_8_bits, palette, ink, transparent),
]


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
@pytest.mark.parametrize("kind", KINDS)
def test_brightness_is_what_the_file_says(tmp_path, kind):
    kind(tmp_path / "image")
    expected = np.stack([RAMP] * 3, axis=-1) * 255
    assert np.abs(read(tmp_path / "image") - expected).max() <= 1


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.float32([[0, 300]]), "expected floats from 0 to 1, got '0 to 300'"),
        (np.float32([[-1, 1]]), "expected floats from 0 to 1, got '-1 to 1'"),
        (np.float32([[np.nan, 1]]), "expected floats from 0 to 1"),
        (np.int32([[0, 1_000_000]]), "expected an image of 8 or 16 bits or of floats from 0 to 1"),
    ],
)
def test_numbers_without_a_meaning_are_refused(tmp_path, pixels, message):
    path = tmp_path / "image.tif"
    Image.fromarray(pixels).save(path)
    with pytest.raises(InputError, match=r"image\.tif\)$") as caught:
        decode(ImageFile(str(path)))
    assert str(caught.value).startswith(message)


def test_an_enormous_image_is_refused_by_its_header(tmp_path):
    whole = png(np.zeros((2, 2)), 0)
    path = tmp_path / "cat" / "big.png"
    path.parent.mkdir()
    header = struct.pack(">II", 23_000, 23_000)  # the rest of the file would not fill it
    changed = b"IHDR" + header + whole[24:29]
    path.write_bytes(whole[:12] + changed + struct.pack(">I", zlib.crc32(changed)) + whole[33:])
    with pytest.raises(InputError, match=r"at most 89,478,485 pixels, got '23000 × 23000' \(in .*big\.png"):
        decode(ImageFile(str(path)))
    with pytest.raises(InputError, match="that can be read"):  # asked for, it is decoded, and broken
        decode(ImageFile(str(path)), 600_000_000)


def test_a_limit_of_ones_own(tmp_path, class_folders):
    root = str(class_folders(tmp_path / "pictures", height=20, width=30))
    assert ImageFolder(root=root, batch_size=2, most_pixels=600).train.images.shape[1:] == (3, 20, 30)
    with pytest.raises(InputError, match="at most 599 pixels"):
        ImageFolder(root=root, batch_size=2, most_pixels=599).setup()


def test_a_folder_is_listed_as_timm_lists_it(tmp_path, class_folders):
    from timm.data.readers import create_reader

    root = class_folders(tmp_path / "pictures", per_class=11)
    (root / "cat" / "deeper").mkdir()
    os.replace(root / "cat" / "03.png", root / "cat" / "deeper" / "3.PNG")
    (root / "cat" / "notes.txt").write_text("no image")
    listing, reader = find_images(root), create_reader("", root=str(root))
    pairs = zip(listing.files, listing.labels.tolist(), strict=True)
    assert [(file.path, label) for file, label in pairs] == [tuple(sample) for sample in reader.samples]
    assert listing.classes == tuple(reader.class_to_idx)


def test_links_that_lead_back_multiply_nothing(tmp_path, class_folders):
    root = class_folders(tmp_path / "pictures")
    before = find_images(root)
    for name in ("here", "there"):  # two of them: 2⁴⁰ ways
        (root / "cat" / name).symlink_to(root, target_is_directory=True)
    after = find_images(root)
    assert (after.files, after.classes) == (before.files, before.classes)
    assert torch.equal(after.labels, before.labels)


def test_a_link_to_images_elsewhere_is_followed(tmp_path, class_folders):
    root = class_folders(tmp_path / "pictures")
    elsewhere = class_folders(tmp_path / "elsewhere")
    (root / "fox").symlink_to(elsewhere / "cat", target_is_directory=True)
    assert "fox" in find_images(root).classes


@pytest.mark.parametrize("ending", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_as_its_camera_says(tmp_path, orientation, ending):
    upright = np.zeros((24, 16, 3), dtype=np.uint8)
    upright[:8, :8] = 255  # white in the upper left corner
    stored = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation]  # of what a camera keeps that is held so
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"image.{ending}"
    write(path, Image.fromarray(np.ascontiguousarray(stored(upright))), exif=exif, quality=100)
    found = read(path)
    assert found.shape == upright.shape
    assert np.abs(found - upright).mean() < 4


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # which Pillow says to whoever reads the screen
def test_broken_tags_of_a_camera_leave_the_image_as_it_is(tmp_path):
    path = tmp_path / "image.jpg"
    write(path, Image.new("RGB", (16, 24), "red"), exif=b"Exif\0\0MM\0*\0\0\0\xff\xff\xff")
    assert read(path).shape == (24, 16, 3)


def test_images_of_every_usual_ending_are_found_in_a_folder_and_in_a_tar(tmp_path):
    endings = ("jpg", "JPEG", "png", "ppm", "pgm", "bmp", "tif", "tiff", "webp", "gif")
    for number, ending in enumerate(endings):
        path = tmp_path / "all" / f"class{number % 2}" / f"{number}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, Image.new("L", (8, 8), 200))
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        tar.add(tmp_path / "all", arcname=".")
    for root in (tmp_path / "all", tmp_path / "all.tar"):
        found = find_images(root)
        assert len(found.files) == len(endings)
        assert all(np.abs(np.asarray(decode(file)).astype(int) - 200).max() < 8 for file in found.files)
