"""Masks of a network of segmentation: PNG files, and IoU as torchmetrics has it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchmetrics.functional.classification import multiclass_jaccard_index

import nas_lightning
from nas_lightning.cli.predict import main
from nas_lightning.errors import InputError
from nas_lightning.jobs.predict import predict
from nas_lightning.models import Predictor
from nas_lightning.models.file import write
from nas_lightning.models.prediction import list_pictures, read_mask
from tests.predictions.conftest import CLASSES
from tests.predictions.test_predict import read


@pytest.fixture(scope="module")
def dense(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    about = replace(nas_lightning.describe(run), task="segmentation", dense=True)
    torch.manual_seed(0)
    write(about.network().eval(), folder / "model.safetensors", about)
    return folder


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Six images, true masks of five in a folder of their own, one of them broken; a broken image."""
    root, random = tmp_path_factory.mktemp("scenes"), np.random.default_rng(0)
    for number in range(6):
        pixels = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        path = root / "images" / f"part {number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, format="PNG")
        mask = random.integers(0, 3, (12, 12), dtype=np.uint8)
        mask[0, :number] = 255  # of no class
        (root / "masks" / path.parent.name).mkdir(parents=True, exist_ok=True)
        if number < 5:
            Image.fromarray(mask).save(root / "masks" / path.parent.name / f"{number}.png")
    (root / "masks" / "part 0" / "4.png").write_bytes(b"no mask")
    (root / "images" / "broken.png").write_bytes(b"no image")
    return root


def test_each_image_has_a_mask_and_iou_is_that_of_torchmetrics(dense, scenes, tmp_path):
    outcome = predict(dense, scenes / "images", tmp_path, masks=scenes / "masks", batch=2)
    rows = {row["file"]: row for row in read(outcome.csv)}
    assert len(rows) == 7
    predictor, network = Predictor(dense), nas_lightning.load(dense)
    predicted, true = [], []
    for picture in list_pictures(scenes / "images"):
        row = rows[picture.name]
        if picture.name == "broken.png":
            assert row["error"].startswith("expected an image")
            assert row["mask"] == row["share(green)"] == ""
            continue
        pixels = np.asarray(Image.open(picture.file.path).convert("RGB"), dtype=np.float32) / 255
        x = torch.from_numpy((pixels - 0.4) / 0.2).permute(2, 0, 1)[None]
        expected = network(x).argmax(dim=1)[0]  # by hand
        with Image.open(tmp_path / row["mask"]) as written:
            assert written.mode == "P"
            mask = torch.from_numpy(np.array(written).astype(np.int64))
        assert torch.equal(mask, expected)
        shares = [float(row[f"share({name})"]) for name in CLASSES]
        assert shares == pytest.approx(
            [(mask == place).double().mean().item() for place in range(3)], abs=1e-6
        )
        if picture.name not in ("part 1/5.jpg", "part 0/4.jpg"):
            truth = np.array(Image.open(scenes / "masks" / picture.name.replace("jpg", "png"))).astype(
                np.int64
            )
            predicted.append(mask)
            true.append(torch.from_numpy(truth))
            one = multiclass_jaccard_index(mask[None], true[-1][None], 3, ignore_index=255)
            assert float(row["IoU"]) == pytest.approx(float(one), abs=1e-6)
    assert rows["part 1/5.jpg"]["IoU"] == rows["part 0/4.jpg"]["IoU"] == ""
    assert "expected a mask that can be read" in rows["part 0/4.jpg"]["error"]
    iou = multiclass_jaccard_index(
        torch.stack(predicted), torch.stack(true), 3, average="none", ignore_index=255
    )
    assert [row[1] for row in outcome.findings.tables[0].rows[:-1]] == pytest.approx(iou.tolist(), abs=1e-6)
    assert outcome.findings.numbers["iou"] == pytest.approx(float(iou.mean()), abs=1e-6)
    with pytest.raises(InputError, match="expected a network that predicts images, not their pixels"):
        predictor.predict(list_pictures(scenes / "images"))


def test_the_page_shows_masks_and_names_are_text(dense, scenes, tmp_path, capsys):
    main([str(dense), str(scenes / "images"), "--out", str(tmp_path / "a"), "--masks", str(scenes / "masks")])
    said = capsys.readouterr().out
    assert "7 images, 2 of them could not be read" in said
    assert "mean IoU of the classes" in said
    page = (tmp_path / "a" / "predictions.html").read_text(encoding="utf-8")
    assert "The least like their true masks" in page
    assert page.count("<img src=") == 12
    assert "<b>red" not in page
    main([str(dense), str(scenes / "images"), "--out", str(tmp_path / "b")])
    assert "IoU" not in capsys.readouterr().out
    assert "The first masks" in (tmp_path / "b" / "predictions.html").read_text(encoding="utf-8")


def in_colors(image):
    image.putpalette([*range(256)] * 3)
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("1", (12, 12), 1), 1),
        (in_colors(Image.new("P", (24, 24), 2)), 2),
        (Image.new("I;16", (24, 48), 300), 300),
    ],
)
def test_masks_of_any_kind_have_their_labels(tmp_path, image, expected):
    image.save(tmp_path / "mask.png")
    mask = read_mask(tmp_path / "mask.png", 12, 12)
    assert mask.shape == (12, 12)
    assert (mask == expected).all()


def test_what_is_no_mask_is_one_line(run, dense, scenes, tmp_path, refusal):
    Image.new("RGB", (12, 12)).save(tmp_path / "mask.png")
    assert "a mask of one channel" in refusal(read_mask, tmp_path / "mask.png", 12, 12)

    def judged(network, masks):
        predict(network, scenes / "images", tmp_path / "out", masks=masks)

    assert "expected a folder of true masks" in refusal(judged, dense, tmp_path / "nowhere")
    assert "expected a network of segmentation beside true masks" in refusal(judged, run, scenes / "masks")
