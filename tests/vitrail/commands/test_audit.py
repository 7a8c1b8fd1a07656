import csv
import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
from PIL import Image
from scipy.stats import binomtest
from timm.data import create_transform, resolve_model_data_config

import vitrail.models  # noqa: F401
from replication.images.photos import photo_crops
from tests.vitrail.commands.conftest import in_classes
from vitrail.commands import audit_page, audit_parts, inputs, p_shap_interval
from vitrail.commands.audit_parts import FOUR_TURNS, KEPT, PARTS
from vitrail.commands.inputs import Folder
from vitrail.errors import VitrailError
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.measure import position_shap
from vitrail.variance import resolution_accuracy as sizes
from vitrail.variance.rescaling import rescale_pos_embed
from vitrail.variance.resolution_accuracy import CALIBRATIONS

ALL = [*PARTS]


@pytest.fixture
def photos(tmp_path):
    """Three photographs of 40 pixels in a folder."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(photo_crops(3, 40, seed=0)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def small(monkeypatch):
    """Make the audited model one of 32 pixels, whatever its name."""

    def use(name, side=32, **options):
        torch.manual_seed(0)
        model = timm.create_model(name, **({"num_classes": 3} | options)).eval()
        model.pretrained_cfg = {**model.pretrained_cfg, "input_size": (3, side, side)}
        monkeypatch.setattr(inputs, "create", lambda *_: model)
        return model

    return use


@pytest.fixture
def vit(small):
    """A ViT of 4 x 4 patches."""
    return small(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=2
    )


@pytest.fixture
def plots(monkeypatch):
    """Leave the page of plots out, which takes as long as all measures of a small model."""
    with monkeypatch.context() as patch:
        patch.setattr(audit_page, "page", lambda *_: None)
        yield patch


@pytest.fixture
def audited(vitrail, photos, plots):
    """Run an audit without plots; returns its exit code, what it said, and its rows by part."""

    def run(*options, data=photos):
        done = vitrail("audit", "model", "--data", data, "--output", "out", *options)
        rows = {}
        if done.code == 0:
            with open("out/audit.csv", newline="") as file:
                for row in csv.DictReader(file):
                    rows.setdefault(row["part"], []).append(row)
        return SimpleNamespace(code=done.code, out=done.out, err=done.err, rows=rows)

    return run


def values(rows, quantity):
    return {r["condition"]: float(r["value"]) for r in rows if r["quantity"] == quantity}


@pytest.mark.slow
def test_a_vit_is_put_to_every_test_on_one_page(audited, plots, vit, photos, tmp_path):
    plots.undo()
    in_classes(photos, "a", "b", "c")
    done = audited("--size", 48)
    assert done.code == 0
    assert [*done.rows] == ALL
    assert "not measured" not in done.out
    png = (tmp_path / "out" / "audit.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert "model (pretrained weights) on 3 images" in (tmp_path / "out" / "audit.svg").read_text()
    title, *told, stamp = (tmp_path / "out" / "audit.txt").read_text().split("\n\n")
    assert title == f"model (pretrained weights) on 3 images of {photos.name}"
    warning, *answers = told  # all three images are predicted as one class
    assert warning.startswith("Take care: ")
    assert len(answers) == 6
    assert all(f"\n\n{answer}\n" in done.out for answer in told)
    assert f"torch {version('torch')}" in stamp
    row = done.rows["Accuracy"][0]
    assert row["labels"] == "own"
    assert row["torch_version"] == version("torch")
    assert row["device"].startswith("cpu")


def test_images_are_shown_as_timm_shows_them(audited, vit, photos):
    with Image.open(photos / "0.png") as image:
        expected = create_transform(**resolve_model_data_config(vit))(image.convert("RGB"))
    shown = []
    vit.register_forward_pre_hook(lambda _, args: shown.append(args[0]))
    assert audited().code == 0
    torch.testing.assert_close(shown[0][0], expected, rtol=0, atol=0)


def test_accuracy_is_the_share_of_its_own_labels(audited, vit, photos):
    """A head that always says the second class is right on the images of that class alone."""
    in_classes(photos, "a", "b", "c")
    torch.nn.init.zeros_(vit.head.weight)
    vit.head.bias.data = torch.tensor([0.0, 1.0, 0.0])
    done = audited("--size", 48)
    (top1,) = done.rows["Accuracy"]
    assert float(top1["value"]) == pytest.approx(100 / 3)
    assert values(done.rows["Turns and mirrors"], "top-1") == pytest.approx({FOUR_TURNS: 100 / 3})
    for name in CALIBRATIONS:
        sizes = values(done.rows["Test sizes"], f"top-1: {name}")
        own = {"32 px": 100 / 3} if name == "UP(P)" else {}  # where no table is resized
        assert sizes == pytest.approx(own | {"48 px": 100 / 3})
    # what depends on neither image nor position
    assert float(done.rows["P-SHAP"][0]["value"]) == 0
    assert set(values(done.rows["Circular shifts"], KEPT).values()) == {100}


@pytest.mark.parametrize(("classes", "told"), [(5, ["top-1"]), (6, ["top-1", "top-5"])])
def test_top_5_is_told_of_more_than_five_classes(audited, small, photos, tmp_path, classes, told):
    """Of five classes, every label is among the first five."""
    in_classes(photos, "a", "b", "c")
    small("test_resnet", num_classes=classes)
    (tmp_path / "classes.txt").write_text("\n".join("abcdef"[:classes]))
    rows = audited("--class-map", "classes.txt", "--size", 32).rows["Accuracy"]
    assert [row["quantity"] for row in rows] == told


def test_p_shap_is_that_of_a_sweep(audited, vit, photos, monkeypatch):
    in_classes(photos, "a", "b", "c")
    view = create_transform(**resolve_model_data_config(vit))
    samples = [(view(image), label) for image, label in Folder(photos, 3)]
    result = position_shap(permutable(vit), samples)
    monkeypatch.setattr(p_shap_interval, "FEWEST", int(result.correct.sum()))
    row = audited("--size", 48).rows["P-SHAP"][0]
    assert float(row["value"]) == pytest.approx(result.mean, abs=1e-5)
    assert [float(row["low"]), float(row["high"])] == pytest.approx(result.interval, abs=1e-4)


def test_p_shap_of_a_few_images_has_no_interval(audited, plots, vit, tmp_path):
    plots.undo()
    done = audited("--size", 48)
    told = "3 images are too few for an interval"
    (row,) = json.loads((tmp_path / "out" / "p-shap.json").read_text())["rows"]
    assert row["condition"].startswith(told)
    assert (row["low"], row["high"]) == (None, None)
    assert done.rows["P-SHAP"][0]["low"] == ""
    for name in ("audit.txt", "audit.csv", "audit.svg"):
        assert told in (tmp_path / "out" / name).read_text(), name


def test_without_labels_the_models_own_predictions_are_the_labels(audited, vit):
    done = audited("--size", 48)
    (refused,) = done.rows["Accuracy"]
    assert refused["quantity"] == "not measured"
    assert "labels need images in folders of the model's classes" in refused["condition"]
    assert refused["labels"] == "predicted"
    assert values(done.rows["Test sizes"], f"{KEPT}: UP(P)")["32 px"] == 100
    assert int(float(done.rows["P-SHAP"][0]["images"])) == 3


def test_a_table_of_positions_is_calibrated_in_each_way(audited, vit, monkeypatch):
    tables = []
    monkeypatch.setattr(
        sizes,
        "rescale_pos_embed",
        lambda *args, **options: tables.append(options) or rescale_pos_embed(*args, **options),
    )
    assert audited().code == 0
    ways = [{"antialias": False, "calibration": way} for way in ("none", "constant", "exact")]
    assert tables == ways


def test_by_default_test_sizes_are_larger_by_up_to_two(audited, vit):
    rows = audited().rows["Test sizes"]
    assert list(values(rows, f"{KEPT}: UP(P)")) == ["32 px", "64 px"]  # 40 and 48 are rounded up


def test_what_was_measured_is_kept(audited, vit, tmp_path, monkeypatch):
    first = audited("--size", 48)
    (tmp_path / "out" / "p-shap.json").unlink()
    monkeypatch.setattr(
        audit_parts, "circular_consistency", lambda *_: pytest.fail("measured again")
    )
    again = audited("--size", 48)
    assert "Circular shifts: kept from before" in again.out
    assert "P-SHAP: kept" not in again.out
    for rows in (first.rows, again.rows):
        del rows["P-SHAP"][0]["wall_seconds"]
    assert again.rows == first.rows


def test_another_audit_is_not_gone_on_with(audited, vit, photos, monkeypatch):
    images = sorted(photos.iterdir())
    for image in images:  # files of one size
        Image.open(image).save(image, "bmp")
    assert audited("--size", 48).code == 0
    for change, *options in (("seed", "--seed", 1), ("images or labels", "--images", 2)):
        done = audited("--size", 48, *options)
        assert done.code == 2
        assert f"out has an audit of other {change}: give another --output" in done.err
    with monkeypatch.context() as patch:
        patch.setattr(audit_parts, "code_digest", lambda: "of tomorrow")
        assert "an audit of other code" in audited("--size", 48).err
    own = images[0].read_bytes()
    images[0].write_bytes(images[1].read_bytes())
    assert len(own) == images[0].stat().st_size
    assert "an audit of other images" in audited("--size", 48).err
    images[0].write_bytes(own)
    in_classes(photos, "a", "b", "c")
    assert "an audit of other images or labels: " in audited("--size", 48).err
    for image in images:
        next(photos.glob(f"*/{image.name}")).rename(image)
    vit.head.weight.data += 1
    assert "an audit of other weights" in audited("--size", 48).err


@pytest.mark.slow
def test_a_damaged_part_is_one_sentence(audited, vit, tmp_path):
    assert audited("--size", 48).code == 0
    (tmp_path / "out" / "p-shap.json").write_text('{"rows": [')
    done = audited("--size", 48)
    assert done.code == 2
    assert "cannot read out/p-shap.json" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_resnet_has_no_p_shap_and_all_else(audited, plots, small):
    plots.undo()
    small("test_resnet")
    done = audited()
    assert done.code == 0
    (refused,) = done.rows["P-SHAP"]
    assert "ResNet" in refused["condition"]
    assert f"P-SHAP: not measured, as {refused['condition']}" in done.out
    assert f"Does it use position? Not measured: {refused['condition']}." in done.out
    assert "Not measured: ResNet has no positions" in Path("out/audit.svg").read_text()
    assert done.rows["P-SHAP"][0]["value"] == ""
    measured = {part for part, rows in done.rows.items() if rows[0]["value"]}
    assert measured == {*ALL} - {"P-SHAP", "Accuracy"}
    sizes = values(done.rows["Test sizes"], f"{KEPT}: no table 'pos_embed'")
    assert [*sizes] == ["32 px", "64 px"]


def test_an_adaptive_swin_survives_every_circular_shift(audited, small):
    options = {"embed_dim": 16, "depths": (2, 2), "num_heads": (1, 2), "window_size": 4}
    small("a_swin_tiny_patch4_window7_224", img_size=32, **options)
    done = audited("--size", 64)
    rows = done.rows["Circular shifts"]
    assert set(values(rows, KEPT).values()) == {100}
    assert values(rows, "logits equal in every bit") == {"circular, two shifts": 100}
    assert "Is it consistent under shifts? Yes: " in done.out


def test_an_octic_vit_survives_every_turn_and_mirror(audited, small):
    options = {"embed_dim": 64, "depth": 1, "num_heads": 1, "init_values": 1}
    small("octic_d8_vit_small_patch16_224", img_size=32, patch_size=8, **options)
    done = audited("--size", 48)
    kept = values(done.rows["Turns and mirrors"], KEPT)
    assert len(kept) == 8
    assert set(kept.values()) == {100}
    equal = values(done.rows["Turns and mirrors"], "logits equal within 0.0001 of the largest")
    assert equal == {"all of these": 100}
    assert done.rows["Standard shifts"][0]["value"]
    assert "Is it consistent under turns and mirrors? Yes: " in done.out


def test_a_size_that_the_model_does_not_take_is_refused_before_any_work(audited, vit, tmp_path):
    done = audited("--size", 48, "--size", 49)
    assert done.code == 2
    assert "--size 49: img_size 49 is not a multiple" in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_model_that_takes_no_larger_images_says_so(audited, small):
    options = {"patch_size": 12, "embed_dim": 24, "depth": 1, "num_heads": 2}
    small("vit_tiny_patch16_224", side=36, img_size=36, **options)
    done = audited()
    assert done.code == 0
    assert "Test sizes: not measured, as img_size 64 is not a multiple" in done.out


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_the_batch_is_halved_until_it_fits(error):
    tried = []

    def measure(batch_size):
        tried.append(batch_size)
        if batch_size > 5:
            raise error
        return "measured"

    assert audit_parts._fitting(measure, 16) == ("measured", 4)
    assert tried == [16, 8, 4]


def test_what_does_not_fit_image_by_image_is_told():
    def measure(_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 TB")

    with pytest.raises(VitrailError, match="a single image takes more memory"):
        audit_parts._fitting(measure, 4)


def test_another_failure_is_no_lack_of_memory():
    def measure(_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        audit_parts._fitting(measure, 4)


@pytest.mark.parametrize(("kept", "images"), [(0, 7), (2, 7), (49, 50), (50, 50)])
def test_a_share_has_wilsons_interval(kept, images):
    row = audit_parts._share(KEPT, "", 100 * kept / images, images)
    wilson = binomtest(kept, images).proportion_ci(method="wilson")
    assert [row["low"], row["high"]] == pytest.approx([100 * wilson.low, 100 * wilson.high])


def test_a_mean_over_views_has_the_interval_of_its_own_value():
    """7 of 28 views of 7 images: not the interval of 2 of 7 images."""
    row = audit_parts._share("top-1", FOUR_TURNS, 25.0, 7)
    wilson = [binomtest(kept, 7).proportion_ci(method="wilson").low * 100 for kept in (1, 2)]
    assert wilson[0] < row["low"] < wilson[1]
    assert row["images"] == 7


@pytest.mark.slow
def test_a_damaged_image_is_told_and_left_out(audited, vit, photos):
    (photos / "1.png").write_bytes(b"nothing")
    done = audited("--size", 48, "--workers", 1)
    assert done.code == 0
    assert "1 of 3 images cannot be read and are left out:" in done.out
    assert f"cannot read image {photos / '1.png'}" in done.out
    rows = [row for part in done.rows.values() for row in part if row["quantity"] == KEPT]
    assert {(float(row["images"]), int(row["left_out"])) for row in rows} == {(2, 1)}


def test_a_folder_without_an_image_that_can_be_read_is_refused(audited, vit, photos, tmp_path):
    for number in range(3):
        (photos / f"{number}.png").write_bytes(b"nothing")
    done = audited()
    assert done.code == 2
    assert f"no image of {photos} can be read" in done.err
    assert not (tmp_path / "out").exists()


def test_the_digest_of_the_code_changes_with_a_module(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "module.py").write_text("x = 1")
    monkeypatch.setattr(audit_parts, "PACKAGE", package)
    before = audit_parts.code_digest()
    (package / "inner" / "module.py").write_text("x = 2")
    assert audit_parts.code_digest() != before


def test_each_number_says_on_what_it_was_measured(audited, plots, vit, tmp_path):
    assert audited("--size", 48).code == 0
    plots.undo()
    file = tmp_path / "out" / "p-shap.json"
    part = json.loads(file.read_text())
    part["provenance"]["device"] = "another device"
    file.write_text(json.dumps(part))
    rows = audited("--size", 48).rows
    own = {row["device"] for name, part in rows.items() for row in part if name != "P-SHAP"}
    assert [row["device"] for row in rows["P-SHAP"]] == ["another device"]
    assert len(own) == 1
    svg = (tmp_path / "out" / "audit.svg").read_text()
    assert f"{own.pop()} and another device" in svg


def test_folders_that_are_links_are_followed(photos, tmp_path):
    in_classes(photos, "a", "b", "c")
    linked = tmp_path / "linked"
    (linked / "a").mkdir(parents=True)
    (linked / "a" / "own.png").symlink_to(next((photos / "a").iterdir()))
    for name in ("b", "c"):
        (linked / name).symlink_to(photos / name)
    (linked / "a" / "around").symlink_to(linked)
    folder = Folder(linked, classes=3)
    assert not folder.unlabelled
    assert [label for _, label in folder.samples] == [0, 1, 2]


def test_a_model_of_other_images_is_refused(audited, small):
    model = small("test_resnet")
    for size, said in (((3, 32, 64), "3 x 32 x 64"), ((1, 32, 32), "1 x 32 x 32")):
        model.pretrained_cfg = {**model.pretrained_cfg, "input_size": size}
        done = audited()
        assert done.code == 2
        assert f"takes images of {said}: give a model of square RGB images" in done.err


def test_the_folder_is_named_after_the_model(vitrail, plots, photos, tmp_path):
    options = ["--data", photos, "--no-pretrained", "--images", 2, "--size", 160]
    done = vitrail("audit", "test_vit.r160_in1k", *options)
    assert done.code == 0
    assert (tmp_path / "audit-test_vit.r160_in1k" / "audit.csv").is_file()


@pytest.mark.slow
def test_an_audit_goes_on_with_the_images_of_the_folder_that_it_is_given(
    audited, vit, photos, tmp_path
):
    """Copies of the same images are the same images; what later lies in the first folder is not."""
    moved = Path(shutil.copytree(photos, tmp_path / "moved"))
    first = audited("--size", 48)
    (tmp_path / "out" / "p-shap.json").unlink()
    for path in photos.iterdir():
        Image.new("RGB", (40, 40)).save(path)
    again = audited("--size", 48, data=moved)
    assert again.rows["P-SHAP"][0]["value"] == first.rows["P-SHAP"][0]["value"]
    (tmp_path / "out" / "p-shap.json").unlink()
    shutil.rmtree(photos)
    once_more = audited("--size", 48, data=moved)
    assert once_more.rows["P-SHAP"][0]["value"] == first.rows["P-SHAP"][0]["value"]


def test_weights_that_are_not_finite_are_refused(audited, vit):
    vit.head.weight.data *= torch.nan
    done = audited("--size", 48)
    assert done.code == 2
    assert "logits are not finite" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["audit", "pshap"])
def test_the_classes_of_a_map_are_the_labels(vitrail, plots, vit, photos, tmp_path, command):
    in_classes(photos, "a", "b", "c")
    (tmp_path / "classes.txt").write_text("c\na\nb\n")
    done = vitrail(command, "model", "--data", photos, "--class-map", "classes.txt")
    assert "Labels (classes.txt): 0 c, 1 a, 2 b" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("name", [os.fsdecode(b"caf\xe9$x_{ $y"), "\u5199\u771f"])
@pytest.mark.filterwarnings("error")  # as matplotlib warns of letters that its font lacks
def test_a_folder_of_any_name_is_audited(audited, plots, vit, photos, tmp_path, name):
    plots.undo()
    odd = photos.rename(tmp_path / name)
    (odd / os.fsdecode(b"damaged-\xe9.png")).write_bytes(b"nothing")
    done = audited("--size", 48, data=odd)
    assert done.code == 0
    assert (tmp_path / "out" / "audit.txt").read_text(encoding="utf-8")
    written = name.encode("ascii", "backslashreplace").decode()
    assert f"3 images of {written}" in (tmp_path / "out" / "audit.svg").read_text()


def test_an_output_among_the_images_is_refused(vitrail, photos):
    """Its page would be measured as an image, and lies in no folder of a class."""
    for output in (photos, photos / "page"):
        done = vitrail("audit", "test_vit", "--data", photos, "--no-pretrained", "--output", output)
        assert done.code == 2
        assert f"--output {output} lies in --data {photos}" in done.err
        assert not (output / "images.json").exists()
