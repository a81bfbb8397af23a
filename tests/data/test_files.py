"""Images in files: decoding, listings, reading in workers, and damaged files."""

import os
import random
import shutil
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nas_lightning.data import ImageFolder, ImageNet, loaders
from nas_lightning.data.files import Fit, ImageFile, decode, find_images, global_seeds
from nas_lightning.errors import InputError
from nas_lightning.models.prediction import list_pictures

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
def test_decoded_brightness(tmp_path):
    for kind in KINDS:
        kind(tmp_path / "image")
        expected = np.stack([RAMP] * 3, axis=-1) * 255
        assert np.abs(read(tmp_path / "image") - expected).max() <= 1


def test_numbers_without_a_meaning_are_refused(tmp_path):
    for pixels, message in [
        (np.float32([[0, 300]]), "Floats must be from 0 to 1, got '0 to 300'"),
        (np.float32([[-1, 1]]), "Floats must be from 0 to 1, got '-1 to 1'"),
        (np.float32([[np.nan, 1]]), "Floats must be from 0 to 1"),
        (np.int32([[0, 1_000_000]]), "The image must have 8 or 16 bits, or floats from 0 to 1"),
    ]:
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
    with pytest.raises(InputError, match="Cannot read the image"):  # asked for, it is decoded, and broken
        decode(ImageFile(str(path)), 600_000_000)


def test_custom_limit_on_pixels(tmp_path, class_folders):
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


def test_exif_orientation_is_applied(tmp_path):
    for ending in ["jpg", "png", "tiff", "webp"]:
        for orientation in range(1, 9):
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


def epoch(data, start=0, epoch=1):
    loader = data.train_dataloader()
    loader.set_epoch(epoch)
    loader.load_state_dict({"epoch": epoch, "batches": start, "length": len(loader)})
    return list(loader)


def all_equal(ones, others):
    assert len(ones) == len(others) > 0
    return all(
        torch.equal(a, b)
        for one, other in zip(ones, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture
def photos(tmp_path, class_folders):
    """Training and test images, larger than what is cut out of them."""
    class_folders(tmp_path / "train", height=40, width=50)
    class_folders(tmp_path / "val", per_class=3, height=40, width=50)
    return tmp_path


@pytest.fixture
def photographs(photos):
    def make(**options):
        options = {
            "root": str(photos),
            "image_size": 24,
            "batch_size": 7,
            "cutout": 4,
            "num_workers": 0,
            **options,
        }
        return ImageNet(**options)

    return make


def test_workers_do_not_change_the_images(photographs):
    assert all_equal(epoch(photographs()), epoch(photographs(num_workers=2)))


def test_timms_rand_augment_is_drawn_with_the_sample(photographs):
    strong = epoch(photographs(rand_augment=9))
    assert not all_equal(strong, epoch(photographs()))
    assert all_equal(strong, epoch(photographs(rand_augment=9, num_workers=2)))
    with pytest.raises(InputError, match="`rand_augment` must be at most 30, got 40"):
        photographs(rand_augment=40)


def test_epoch_resumes_in_the_middle(photographs):
    assert all_equal(epoch(photographs())[2:], epoch(photographs(), start=2))


def test_epochs_and_seeds_change_the_crops(photographs):
    fixed = {"augment": True, "cutout": 0}
    first, other = (epoch(photographs(**fixed), epoch=number)[0][0] for number in (1, 2))
    assert not torch.equal(first, other)
    assert not torch.equal(first, epoch(photographs(**fixed, seed=1))[0][0])


def test_reading_leaves_the_global_generators_as_they_were(photographs):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    epoch(photographs())
    assert before[0] == random.getstate()
    assert before[1] == np.random.get_state()[1].tolist()
    assert torch.equal(before[2], torch.get_rng_state())


def test_samples_of_a_batch_have_different_seeds(photographs, photos):
    """The same image at two places of a batch is cropped in two ways."""
    one = (photos / "train" / "cat" / "00.png").read_bytes()
    for path in photos.glob("train/*/*.png"):
        path.write_bytes(one)
    ((x, _), *_) = epoch(photographs(cutout=0))
    assert len(x.flatten(1).unique(dim=0)) == len(x)


def test_two_processes_read_halves_of_the_batch(photographs, monkeypatch):
    whole = epoch(photographs(batch_size=8))
    monkeypatch.setattr(loaders, "rank_and_world", lambda: (0, 2))
    left = epoch(photographs(batch_size=4))
    monkeypatch.setattr(loaders, "rank_and_world", lambda: (1, 2))
    right = epoch(photographs(batch_size=4))
    halves = [
        tuple(torch.cat(pair) for pair in zip(a, b, strict=True)) for a, b in zip(left, right, strict=True)
    ]
    assert all_equal(whole, halves)


def test_evaluation_reads_the_center(photographs):
    first, again = (list(photographs().test_dataloader()) for _ in range(2))
    assert all_equal(first, again)
    assert first[0][0].shape == (9, 3, 24, 24)


def test_memory_disk_and_tar_give_the_same_batches(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures")
    tar = as_tar(root)
    options = {"batch_size": 5, "crop_padding": 2}
    memory = epoch(ImageFolder(root=str(root), in_memory=True, **options))
    assert all_equal(memory, epoch(ImageFolder(root=str(root), in_memory=False, **options)))
    assert all_equal(memory, epoch(ImageFolder(root=str(tar), in_memory=False, num_workers=2, **options)))
    assert all_equal(memory, epoch(ImageFolder(root=str(tar), in_memory="auto", **options)))


def test_parts_in_tar_files_are_those_in_folders(tmp_path, class_folders, as_tar):
    folders, tars = tmp_path / "folders", tmp_path / "tars"
    for part, count in (("train", 6), ("test", 2)):
        class_folders(folders / part, per_class=count)
        tars.mkdir(exist_ok=True)
        as_tar(folders / part).rename(tars / f"{part}.tar")
    one, other = ImageFolder(root=str(folders), batch_size=4), ImageFolder(root=str(tars), batch_size=4)
    assert all_equal(list(one.test_dataloader()), list(other.test_dataloader()))
    assert (len(one.train), len(one.test), one.classes) == (18, 6, ("cat", "dog", "owl"))


def test_a_tar_of_tars_is_read_like_its_folder(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "plain")
    outer = class_folders(tmp_path / "outer")
    for folder in sorted(outer.iterdir()):
        as_tar(folder, name="")
        shutil.rmtree(folder)
    found = find_images(as_tar(outer))
    expected = find_images(root)
    assert found.classes == expected.classes

    def contents(listing):
        files = zip(listing.files, listing.labels.tolist(), strict=True)
        return sorted((label, np.asarray(decode(file)).tobytes()) for file, label in files)

    assert contents(found) == contents(expected)
    assert {file.member for file in found.files} >= {"./cat.tar/00.png", "./owl.tar/09.png"}


def test_held_out_part_does_not_depend_on_the_seed(tmp_path, class_folders):
    root = str(class_folders(tmp_path / "pictures"))
    parts = [ImageFolder(root=root, batch_size=2, seed=seed) for seed in (0, 1)]
    assert torch.equal(parts[0].test.images, parts[1].test.images)
    assert (len(parts[0].train), len(parts[0].test)) == (24, 6)
    assert parts[0].test.labels.bincount().tolist() == [2, 2, 2]


def test_images_of_different_sizes_are_fitted(tmp_path, class_folders):
    root = class_folders(tmp_path / "pictures", height=20, width=30)
    Image.open(root / "cat" / "01.png").resize((90, 31)).save(root / "cat" / "01.png")
    assert ImageFolder(root=str(root), batch_size=2).train.images.shape[1:] == (3, 20, 30)
    assert ImageFolder(root=str(root), batch_size=2, image_size=8).train.images.shape[1:] == (3, 8, 8)


def test_fit_keeps_the_center_and_the_aspect():
    wide = np.zeros((4, 12, 3), dtype=np.uint8)
    wide[:, 4:8] = 200
    assert Fit(4, 4)(Image.fromarray(wide)).unique().tolist() == [200]
    assert Fit(4, 12)(Image.fromarray(wide)).permute(1, 2, 0).numpy().tolist() == wide.tolist()


def test_global_seeds_covers_the_three_generators_that_transforms_use():
    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    with global_seeds(5):
        first = draw()
    between = draw()
    with global_seeds(5):
        assert draw() == first
    assert draw() != between


# What is broken


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_broken_image_is_named_in_one_line(tmp_path, class_folders, workers, in_memory):
    root = class_folders(tmp_path / "pictures")
    for name in ("cat/03.png", "dog/05.png"):
        (root / name).write_bytes((root / name).read_bytes()[:60])
    data = ImageFolder(root=str(root), batch_size=6, in_memory=in_memory, num_workers=workers)
    both = r"got 2 that cannot: .*cat/03\.png\); .*dog/05\.png\)$"
    one = r"got one that cannot: .*(cat/03|dog/05)\.png\)$"
    with pytest.raises(InputError, match=rf"images that can be read.*{both if in_memory else one}") as caught:
        list(data.train_dataloader()), data.setup()
    assert "dataset.skip_broken=true" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_broken_images_are_listed_at_once_or_left_out(tmp_path, class_folders, parts, capsys):
    """Also the first image, of which the size is taken."""
    root = tmp_path / "pictures"
    for part in parts or (".",):
        class_folders(root / part, per_class=4)
    damaged = sorted(path for path in root.rglob("*.png") if path.name in ("00.png", "02.png"))
    for path in damaged:
        path.write_bytes(path.read_bytes()[:60])
    (root / parts[0] / "cat" if parts else root / "cat").joinpath("._01.png").write_bytes(b"of macOS")
    with pytest.raises(InputError) as caught:
        ImageFolder(root=str(root), batch_size=1, image_size=8).setup()
    assert str(caught.value).count(".png") == len(damaged) == (12 if parts else 6)
    assert all(str(path) in str(caught.value) for path in damaged)

    data = ImageFolder(root=str(root), batch_size=1, skip_broken=True, test_fraction=0.5)
    data.setup()
    assert (len(data.train), len(data.test)) == ((6, 6) if parts else (3, 3))
    assert data.image == (3, *ImageFolder(root=str(root), image_size=None, skip_broken=True).image[1:])
    told = capsys.readouterr().err
    assert "Left out 6 of 12 images: " in told
    assert all(str(path) in told for path in damaged)


def test_hidden_files_are_ignored(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures", per_class=2)
    for name in ("cat/._00.png", ".thumbnails/1.png", "dog/.hidden/2.png"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"nothing to see")
    tar = as_tar(root)
    for source in (root, tar):
        found = find_images(source)
        assert len(found.files) == 6
        assert found.classes == ("cat", "dog", "owl")
    assert len(list_pictures(root)) == 6


def test_a_broken_image_in_a_tar_is_named(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures", per_class=2)
    (root / "owl" / "01.png").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"pictures\.tar: .*owl/01\.png\)$"):
        ImageFolder(root=str(as_tar(root)), test_fraction=0.5, batch_size=1).setup()


def test_damaged_bytes_never_raise_anything_but_our_error(tmp_path, picture):
    for form in ["PNG", "JPEG", "GIF", "BMP", "WEBP"]:
        whole = picture(0, form=form)
        dice = random.Random(form)
        refused = []
        for case in range(50):
            damaged = bytearray(whole[: dice.randrange(len(whole))] if case % 2 else whole)
            for _ in range(case % 7):
                if damaged:
                    damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            path = tmp_path / f"{case}.img"
            path.write_bytes(damaged)
            try:
                decode(ImageFile(str(path)))
            except InputError as error:
                refused.append((path.name, str(error)))
        assert len(refused) > 10
        assert all(name in message and "\n" not in message for name, message in refused)


def make_nothing(root):
    return root / "nowhere"


def make_empty(root):
    return root


def make_classes_without_images(root):
    (root / "cat").mkdir()
    return root


def make_text(root):
    (root / "cat").mkdir()
    (root / "cat" / "notes.txt").write_text("no image")
    return root


def make_broken_tar(root):
    (root / "images.tar").write_bytes(b"not a tar file" * 100)
    return root / "images.tar"


def make_empty_tar(root):
    with tarfile.open(root / "images.tar", "w"):
        return root / "images.tar"


@pytest.mark.parametrize(
    "make",
    [make_nothing, make_empty, make_classes_without_images, make_text, make_broken_tar, make_empty_tar],
)
def test_a_root_without_images_is_refused_in_one_line(make, tmp_path):
    root = make(tmp_path)
    with pytest.raises(InputError, match=r"images") as caught:
        ImageFolder(root=str(root)).prepare()
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_compressed_tar_is_refused(tmp_path, class_folders, as_tar):
    root = class_folders(tmp_path / "pictures", per_class=1)
    with pytest.raises(InputError, match=r"uncompressed \.tar"):
        ImageFolder(root=str(as_tar(root, "w:gz", ".tar.gz"))).prepare()


def test_a_truncated_tar_is_refused(tmp_path, class_folders, as_tar):
    tar = as_tar(class_folders(tmp_path / "pictures"))
    content = tar.read_bytes()
    refused = []
    for length in range(100, len(content), len(content) // 40):
        tar.write_bytes(content[:length])
        try:
            ImageFolder(root=str(tar), batch_size=1).setup()
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 2}, "`num_classes` must be 3, as the folder has, got 2"),
        ({"batch_size": 25}, "`batch_size` must be at most 24, got 25"),
        ({"test_fraction": 0.0}, "`test_fraction` must be greater than 0"),
        ({"test_fraction": 1.0}, "`test_fraction` must be less than 1"),
        ({"test_fraction": 0.001}, "both sides"),
        ({"image_size": 0}, "`image_size` must be at least 1"),
        ({"num_workers": -1}, "`num_workers` must be at least 0"),
        ({"in_memory": "never"}, "must be a valid boolean or 'auto', got 'never'"),
        ({"val_fraction": 0.001}, "both sides"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(tmp_path, class_folders, options, message):
    root = class_folders(tmp_path / "pictures")
    with pytest.raises(InputError, match=message):
        ImageFolder(root=str(root), **{"batch_size": 2, **options}).prepare()


def test_one_class_is_refused(tmp_path, class_folders):
    with pytest.raises(InputError, match="at least 2 classes, got 1"):
        ImageFolder(root=str(class_folders(tmp_path / "pictures", classes=["cat"]))).prepare()


def test_a_test_class_that_training_lacks_is_refused(tmp_path, class_folders):
    class_folders(tmp_path / "train")
    class_folders(tmp_path / "test", classes=["cat", "dgo"])
    with pytest.raises(InputError, match=r"did you mean 'dog'.*got 'dgo'"):
        ImageFolder(root=str(tmp_path)).prepare()


def test_a_root_must_be_given():
    with pytest.raises(InputError, match=r"dataset\.root=FOLDER"):
        ImageFolder().prepare()


def test_labels_follow_the_sorted_class_names(tmp_path, class_folders):
    found = find_images(class_folders(tmp_path / "pictures", per_class=2))
    assert all(Path(file.path).is_file() for file in found.files)
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
