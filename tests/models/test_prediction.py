"""`nas-predict`: every file is a row, and the numbers equal scikit-learn's and torchmetrics'."""

import csv
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torchmetrics.functional.classification import multiclass_calibration_error, multiclass_jaccard_index

import nas_lightning
from nas_lightning.cli.predict import main
from nas_lightning.data.files import find_images
from nas_lightning.errors import InputError
from nas_lightning.jobs.predict import predict, write_outcome
from nas_lightning.models import Ensemble, Predictions, Predictor
from nas_lightning.models.file import write
from nas_lightning.models.prediction import draw_confusion, list_pictures, read_mask, reliability
from nas_lightning.plots.files import theme_svg
from nas_lightning.utils.files import hold
from tests.models.conftest import CLASSES, DAMAGED, write_network


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def outcome(run, images, tmp_path_factory):
    return predict(run, images, tmp_path_factory.mktemp("out"), batch=32)


def test_every_file_has_a_row(outcome, images):
    rows = read(outcome.csv)
    files = sorted(str(path.relative_to(images)) for path in images.rglob("*.*"))
    assert sorted(row["file"].lstrip("'") for row in rows) == files
    assert len(rows) == 300
    wrong = {row["file"].lstrip("'"): row for row in rows if row["error"]}
    assert set(wrong) == set(DAMAGED)
    for name, row in wrong.items():
        assert row["predicted"] == row["confidence"] == row["p(green)"] == ""
        assert row["error"].startswith(("The file is damaged", "Cannot read the image")), name


def test_the_outputs_are_those_of_the_network(outcome, run, images):
    """Read by hand: Pillow, resize, scale, softmax."""
    network = nas_lightning.load(run)
    for row in [row for row in read(outcome.csv) if not row["error"]][::29]:
        pixels = np.asarray(Image.open(images / row["file"]).convert("RGB"), dtype=np.float32) / 255
        x = torch.from_numpy((pixels - 0.4) / 0.2).permute(2, 0, 1)[None]
        expected = network(x).softmax(dim=1)[0].detach()
        found = torch.tensor([float(row[f"p({name})"]) for name in CLASSES])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert row["predicted"] == CLASSES[int(expected.argmax())]
        assert float(row["confidence"]) == pytest.approx(float(expected.max()), abs=1e-5)


def test_class_scores_equal_scikit_learn(outcome):
    rows = [row for row in read(outcome.csv) if row["class"] and not row["error"]]
    assert len(rows) == 295
    true, predicted = ([row[key] for row in rows] for key in ("class", "predicted"))
    classes, confused, confusion = outcome.findings.tables
    matrix = confusion_matrix(true, predicted, labels=CLASSES)
    assert [list(row[1:]) for row in confusion.rows] == matrix.tolist()
    expected = precision_recall_fscore_support(true, predicted, labels=CLASSES, zero_division=0)
    for row, *values in zip(classes.rows, *expected, strict=False):
        assert row[1:] == pytest.approx(values, abs=1e-6)
    mean = precision_recall_fscore_support(true, predicted, average="macro", labels=CLASSES, zero_division=0)
    assert classes.rows[-1][1:4] == pytest.approx(mean[:3], abs=1e-6)
    assert outcome.findings.numbers["accuracy"] == pytest.approx(np.mean(np.array(true) == predicted))
    wrong = matrix - np.diag(np.diag(matrix))
    assert [row[2] for row in confused.rows] == sorted(wrong[wrong > 0].tolist(), reverse=True)


def test_calibration_equals_torchmetrics(outcome):
    found = outcome.predictions
    probabilities, truth = found.outputs[found.judged], found.truth[found.judged]
    expected = multiclass_calibration_error(probabilities, truth, 3, n_bins=15)
    assert outcome.findings.numbers["calibration_error"] == pytest.approx(float(expected), abs=1e-6)
    bins = reliability(found)
    assert sum(count for _, _, count in bins) == 295
    gaps = sum(count * abs(confidence - accuracy) for confidence, accuracy, count in bins) / 295
    assert gaps == pytest.approx(float(expected), abs=1e-6)


def test_the_page_is_whole_and_names_are_text(outcome):
    page = outcome.page.read_text(encoding="utf-8")
    assert "<b>red/" not in page
    assert "&lt;b&gt;red/" in page
    assert page.count("<li><img") == 24
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    for name in DAMAGED[:2]:
        assert name in page


def test_a_page_of_many_classes_leaves_their_outputs_to_the_table(tmp_path):
    classes = tuple(f"class {number}" for number in range(21))
    names = tuple(f"{number}.png" for number in range(501))
    outputs = torch.rand(501, 21, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    found = Predictions(names, classes, outputs, torch.zeros(501, dtype=torch.int64))
    page = write_outcome(tmp_path, "many", found, None).page.read_text(encoding="utf-8")
    assert "p(class 20)" not in page
    assert "The first 500 of 501 rows. predictions.csv has all 21 outputs." in page
    assert f"<td>{found.confidence[1]:.4f}".rstrip("0") in page
    assert "p(class 20)" in (tmp_path / "predictions.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("classes", [3, 60])
def test_letters_of_a_figure_are_11_pixels_high(classes):
    svg = theme_svg(draw_confusion(torch.ones(classes, classes), [f"{n}" for n in range(classes)]), "name")
    width, points = re.search(r'width="(\d+)".*viewBox="0 0 ([\d.]+)', svg).groups()
    heights = re.findall(r"font(?:-size)?: ?([\d.]+)px", svg)
    assert min(map(float, heights)) * float(width) / float(points) >= 11


def test_images_in_no_folder_of_a_class_are_predicted_and_not_judged(run, images, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "a.png").write_bytes((images / "blue" / "0.png").read_bytes())
    outcome = predict(run, flat, tmp_path / "out")
    (row,) = read(outcome.csv)
    assert row["class"] == ""
    assert row["predicted"] in CLASSES
    assert not outcome.findings.tables
    single = predict(run, flat / "a.png", tmp_path / "single")
    assert read(single.csv)[0]["confidence"] == row["confidence"]


def test_a_tar_is_read_as_its_folder(run, images, outcome, tmp_path):
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        for path in sorted(images.rglob("*.png"))[:20]:
            tar.add(path, arcname=str(path.relative_to(images)))
    rows = read(predict(run, tmp_path / "images.tar", tmp_path / "out").csv)
    known = {row["file"]: row for row in read(outcome.csv)}
    assert len(rows) == 20
    for row in rows:
        assert row["predicted"] == known[row["file"]]["predicted"]


def test_files_and_folders_may_have_any_name(run, images, tmp_path):
    whole = (images / "blue" / "0.png").read_bytes()
    names = (b"caf\xe9.png", b"new\nline.png", b"'quoted', and more.png", b"\xff/1.png")
    for name in names:
        path = os.path.join(os.fsencode(tmp_path / "any"), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(whole)
    rows = read(predict(run, tmp_path / "any", tmp_path / "out").csv)
    assert sorted(row["file"] for row in rows) == [
        *("'quoted', and more.png", "\\xff/1.png"),
        *("caf\\xe9.png", "new\nline.png"),
    ]
    assert find_images(tmp_path / "any").classes == ("", "\\xff")


def test_ensemble_reports_disagreement(run, images, tmp_path):
    runs = [run, *(write_network(tmp_path / f"run{seed}", seed) for seed in (1, 2))]
    Ensemble.of_runs(runs).save(tmp_path / "all" / "ensemble")
    few = [picture.file.path for picture in list_pictures(images / "green")][:12]
    folder = tmp_path / "few"
    folder.mkdir()
    for number, path in enumerate(few):
        (folder / f"{number}.png").write_bytes(Path(path).read_bytes())
    together = predict(tmp_path / "all", folder, tmp_path / "out").predictions
    alone = [predict(one, folder, tmp_path / "alone").predictions for one in runs]
    mean = torch.stack([one.outputs for one in alone]).mean(dim=0)
    torch.testing.assert_close(together.outputs, mean, atol=1e-6, rtol=0)
    places = [one.predicted for one in alone]
    pairs = [(places[a] != places[b]).float() for a, b in ((0, 1), (0, 2), (1, 2))]
    torch.testing.assert_close(together.disagreement, torch.stack(pairs).mean(dim=0))


def test_onnx_runtime_predicts_the_same(run, images, outcome, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    found = predict(run, images, tmp_path, runtime="onnx").predictions
    torch.testing.assert_close(found.outputs, outcome.predictions.outputs, atol=1e-5, rtol=0, equal_nan=True)


def test_a_network_for_gray_images_sees_them_in_gray(images, tmp_path):
    gray = write_network(tmp_path / "gray", seed=0, channels=1)
    assert len(predict(gray, images / "green", tmp_path / "out").predictions.errors) == 1
    two = write_network(tmp_path / "two", seed=0, channels=2)
    outcome = predict(two, images / "green", tmp_path / "out2")
    assert all("gray or in color" in reason for reason in outcome.predictions.errors.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "{tmp}/nothing"], "There is no such image, folder, or .tar file of images"),
        (["{run}", "{tmp}"], "There are no files of images"),
        (["{tmp}", "{images}"], "The path must be the folder of a run of nas-train, or its"),
        (["{run}", "{images}", "--batch", "0"], "`--batch` must be from 1 to 65,536, got 0"),
        (["{run}", "{images}", "--device", "cuda:9"], "The device must be one of this machine"),
        (["{run}", "{images}", "--device", "toaster"], "The device must be one of this machine"),
        (["{run}", "{images}", "--device", "meta"], "The device must be one of this machine"),
        (["{run}", "{images}", "--runtime", "java"], "Invalid arguments: argument --runtime"),
    ],
)
def test_wrong_arguments_are_one_line(words, message, run, images, tmp_path):
    with pytest.raises(SystemExit) as ending:
        main([word.format(run=run, images=images, tmp=tmp_path) for word in words])
    assert message in str(ending.value)
    assert "\n" not in str(ending.value)


def test_second_prediction_in_a_folder_is_refused(run, images, tmp_path):
    """Or the rows would be of one, and the page of the other."""
    out = tmp_path / "out"
    out.mkdir()
    with hold(out), pytest.raises(SystemExit, match=r"^error: another process is writing here, .*out\)$"):
        main([str(run), str(images / "green"), "--out", str(out)])
    assert [*out.iterdir()] == []


def test_the_command_says_where_to_look(run, images, tmp_path, capsys):
    main([str(run), str(images / "green"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert "99 images, 1 of them could not be read" in said
    assert (tmp_path / "out" / "predictions.csv").is_file()
    assert str(tmp_path / "out" / "predictions.html") in said


@pytest.mark.parametrize(("task", "kind"), [("regression", "y"), ("binary", "p"), ("multi_label", "p")])
def test_folders_are_no_labels_for_other_tasks(run, images, tmp_path, task, kind):
    """Of an ensemble, too: a disagreement of classes is of classes alone."""
    about = replace(nas_lightning.describe(run), task=task)
    for name in ("a", "b"):
        write(nas_lightning.load(run), tmp_path / name / "model.safetensors", about)
    Ensemble.of_runs([tmp_path / "a", tmp_path / "b"]).save(tmp_path / "all" / "ensemble")
    outcome = predict(tmp_path / "all", images / "green", tmp_path / "out")
    assert not outcome.findings.tables
    page = outcome.page.read_text(encoding="utf-8")
    assert "most confident mistakes" not in page
    assert ("numbers each" in page) == (task == "regression")
    rows = read(outcome.csv)
    named = set() if task == "regression" else {"class", "predicted"}  # numbers are taken for nothing
    assert set(rows[0]) == {"file", *named, "error", *(f"{kind}({name})" for name in CLASSES)}
    values = torch.tensor(
        [[float(row[f"{kind}({name})"]) for name in CLASSES] for row in rows if not row["error"]]
    )
    plain = Predictor(run).predict(list_pictures(images / "green")).outputs
    sums = plain[plain.isfinite().all(dim=1)].sum(dim=1)
    assert not torch.allclose(values.sum(dim=1), sums)  # no softmax


# Masks of a network of segmentation


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
            assert row["error"].startswith(("The file is damaged", "Cannot read the image"))
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
    assert "Cannot read the mask" in rows["part 0/4.jpg"]["error"]
    iou = multiclass_jaccard_index(
        torch.stack(predicted), torch.stack(true), 3, average="none", ignore_index=255
    )
    assert [row[1] for row in outcome.findings.tables[0].rows[:-1]] == pytest.approx(iou.tolist(), abs=1e-6)
    assert outcome.findings.numbers["iou"] == pytest.approx(float(iou.mean()), abs=1e-6)
    with pytest.raises(InputError, match="The network must predict images, not their pixels"):
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


def test_wrong_masks_are_one_line(run, dense, scenes, tmp_path, refusal):
    Image.new("RGB", (12, 12)).save(tmp_path / "mask.png")
    assert "A mask must have one channel" in refusal(read_mask, tmp_path / "mask.png", 12, 12)

    def judged(network, masks):
        predict(network, scenes / "images", tmp_path / "out", masks=masks)

    assert "There is no folder of true masks" in refusal(judged, dense, tmp_path / "nowhere")
    assert "`masks` needs a segmentation network" in refusal(judged, run, scenes / "masks")
