"""An image or a mask that cannot be decoded is one sentence with its path."""

import io

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from replication.datasets.folders import BLOOD, square_around
from replication.datasets.miniature import write_miniature
from replication.datasets.verify import verify
from replication.images.masks import read_mask
from replication.images.opening import build
from vitrail.errors import VitrailError
from vitrail.image_files import read_image

VARIANTS = 300
CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"gAMA", b"iCCP", b"tEXt", b"zTXt", b"iTXt", b"pHYs", b"IDAT")


def encode(pixels, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, **options)
    return file.getvalue()


def samples():
    random = np.random.RandomState(0)
    scene = np.kron(random.randint(256, size=(6, 8, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    text = PngImagePlugin.PngInfo()
    text.add_text("a", "b" * 50, zip=True)
    text.add_itxt("c", "d" * 50, zip=True)
    png = encode(scene, format="PNG", pnginfo=text, dpi=(72, 72))
    mask = Image.fromarray(scene[..., 0] % 4)
    mask.putpalette(list(range(256)) * 3)
    palette = io.BytesIO()
    mask.save(palette, format="PNG", transparency=0)
    return {
        "jpg": encode(scene, format="JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"),
        "png": png,
        "palette.png": palette.getvalue(),
        "ppm": encode(scene, format="PPM"),
    }


def damaged(content, random):
    """Cut it, flip a few bits, or put a chunk of a PNG in a wrong place with a right checksum."""
    bytes_ = bytearray(content)
    kind = random.randint(3)
    if kind == 0:
        return bytes(bytes_[: random.randint(len(bytes_))])
    if kind == 1 or not content.startswith(b"\x89PNG"):
        for place in random.randint(len(bytes_), size=random.randint(1, 12)):
            bytes_[place] ^= 1 << random.randint(8)
        return bytes(bytes_)
    file = io.BytesIO()
    body = bytes(random.randint(256, size=random.randint(0, 30), dtype=np.uint8))
    PngImagePlugin.putchunk(file, CHUNKS[random.randint(len(CHUNKS))], body)
    place = 8 if random.randint(4) == 0 else 33
    return content[:place] + file.getvalue() + content[place:]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", ["jpg", "png", "palette.png", "ppm"])
def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path, suffix):
    whole, random = samples()[suffix], np.random.RandomState(1)
    told = []
    for number in range(VARIANTS):
        path = tmp_path / f"{number}.{suffix}"
        path.write_bytes(damaged(whole, random))
        for read in (read_image, read_mask):
            try:
                read(path)
            except VitrailError as error:
                told.append((str(path), str(error)))
    assert len(told) > VARIANTS / 4
    assert all(path in said and "\n" not in said for path, said in told)


def test_an_image_that_is_far_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("RGB", (30, 30)).save(tmp_path / "bomb.png")
    with pytest.raises(VitrailError, match=r"bomb\.png has more than 200 pixels"):
        read_image(tmp_path / "bomb.png")


def test_sixteen_bits_of_grey_become_eight(tmp_path):
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    for suffix in ("png", "tif"):
        Image.fromarray(grey).save(tmp_path / f"grey.{suffix}")
        image = read_image(tmp_path / f"grey.{suffix}")
        assert image.mode == "RGB"
        assert np.array_equal(np.asarray(image)[..., 1], grey // 257)
    for bits, maximum in ((16, b"65535"), (10, b"1023")):
        stored = (grey >> (16 - bits)).astype(">u2").tobytes()
        (tmp_path / "grey.pgm").write_bytes(b"P5 16 16 " + maximum + b"\n" + stored)
        read = np.asarray(read_image(tmp_path / "grey.pgm"))[..., 1]
        assert np.abs(read.astype(int) - grey // 257).max() <= (bits < 16)


@pytest.mark.parametrize("header", [b"P6 4 4 0\n", b"P6 4 x 255\n", b"P5 4 4 99999\n"])
def test_a_header_that_pillow_stumbles_over_is_one_sentence(tmp_path, header):
    (tmp_path / "odd.ppm").write_bytes(header + bytes(48))
    with pytest.raises(VitrailError, match=r"cannot read image .*odd\.ppm \("):
        read_image(tmp_path / "odd.ppm")


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_without_a_known_range_are_refused(tmp_path, dtype):
    Image.fromarray(np.ones((4, 4), dtype=dtype)).save(tmp_path / "wide.tif")
    with pytest.raises(VitrailError, match=r"wide\.tif has 32 bits a pixel, whose range is unkn"):
        read_image(tmp_path / "wide.tif")


def test_a_folder_in_the_place_of_an_image_is_named(tmp_path):
    for read in (read_image, read_mask):
        with pytest.raises(VitrailError, match=f"cannot read .* {tmp_path} "):
            read(tmp_path)


def test_dinobloom_trains_on_five_more_datasets_and_never_on_what_bmc_holds_out(registry, tmp_path):
    write_miniature(registry["dinobloom"], tmp_path, per_class=2, classes=3)
    verify(registry["dinobloom"], tmp_path)
    bmc, everything = (
        {split: build(registry[name], split, tmp_path) for split in ("train", "val")}
        for name in ("bmc", "dinobloom")
    )
    listed = (tmp_path / "dinobloom/bmc/bm_test.csv").read_text()
    for split, cells in bmc.items():
        names = [cells.dataset.samples[index][0].rpartition("/")[2] for index in cells.indices]
        assert {name in listed for name in names} == {split == "val"}
    sizes = {split: len(images) for split, images in everything.items()}
    assert sizes == {"train": 6, "val": 6}
    assert len(bmc["train"]) == 6 - len(BLOOD)


def test_each_of_dinoblooms_datasets_must_hold_an_image(registry, tmp_path):
    folder = write_miniature(registry["dinobloom"], tmp_path, per_class=2, classes=3)
    (image,) = (folder / "apl").rglob("*.tif")
    image.unlink()
    with pytest.raises(VitrailError, match=r"apl and the folders below it hold no images; get it"):
        verify(registry["dinobloom"], tmp_path)


def test_eurosat_by_seed_has_another_test_for_each_seed_and_eurosat_the_same(registry, tmp_path):
    info, fixed = registry["eurosat-by-seed"], registry["eurosat"]
    write_miniature(info, tmp_path, per_class=4, classes=5)
    held_out = []
    for seed in (0, 1):
        train, val = (build(info, split, tmp_path, seed).indices for split in ("train", "val"))
        assert sorted([*train, *val]) == list(range(100))
        assert len(train) == 80
        held_out.append(val)
        assert build(info, "val", tmp_path, seed).indices == val
    assert held_out[0] != held_out[1]
    splits = [build(fixed, "val", tmp_path, seed).indices for seed in (0, 1)]
    assert splits[0] == splits[1]


def test_tiny_imagenet_has_one_label_for_a_class_in_both_splits(registry, tmp_path):
    info = registry["tiny-imagenet"]
    base = write_miniature(info, tmp_path, per_class=1, classes=3) / "tiny-imagenet-200"
    train = build(info, "train", tmp_path)
    assert [path.split("/")[-3] for path, _ in train.samples] == train.classes
    names = {label: name for name, label in zip(train.classes, train.targets, strict=True)}
    # The lines are in no order of classes, nor are those of the list of classes.
    boxes = "\t0\t0\t31\t31\n"
    order = ((0, 2), (1, 0), (2, 1))
    lines = [f"val_{number}.JPEG\t{names[label]}{boxes}" for number, label in order]
    (base / "val" / "val_annotations.txt").write_text("".join(lines))
    (base / "wnids.txt").write_text("\n".join(reversed(train.classes)) + "\n")
    val = build(info, "val", tmp_path)
    assert val.targets == [2, 0, 1]
    assert [path.split("/")[-1] for path, _ in val.samples] == [f"val_{n}.JPEG" for n in range(3)]


def test_images_below_a_class_folder_are_counted_as_they_are_read(registry, tmp_path):
    entry = registry["tiny-imagenet"]
    folder = write_miniature(entry, tmp_path, per_class=2, classes=3)
    classes = [image.model_copy(update={"classes": 3, "images": 6}) for image in entry.images[:1]]
    info = entry.model_copy(update={"images": classes})
    verify(info, tmp_path)
    next(folder.rglob("train/*/images/*.JPEG")).unlink()
    with pytest.raises(VitrailError, match="has 5 images instead of 6"):
        verify(info, tmp_path)


@pytest.mark.parametrize(
    ("box", "square"),
    [
        ((20, 30, 40, 34), (20, 22, 40, 42)),  # around its middle
        ((0, 10, 4, 30), (0, 10, 20, 30)),  # moved to the right
        ((90, 70, 100, 80), (90, 70, 100, 80)),  # a square already
        ((60, 76, 100, 80), (60, 40, 100, 80)),  # moved up
        ((0, 0, 100, 10), (10, 0, 90, 80)),  # as high as the picture
    ],
)
def test_the_crop_of_a_cell_is_a_square_around_its_box_within_the_picture(box, square):
    assert square_around(box, (100, 80)) == square


def test_no_picture_of_bccd_is_in_both_splits(registry, tmp_path):
    info = registry["bccd"]
    write_miniature(info, tmp_path, per_class=4)
    train, val = (build(info, split, tmp_path) for split in ("train", "val"))
    pictures = [{path for path, _, _ in cells.cells} for cells in (train, val)]
    assert [len(found) for found in pictures] == [3, 3]  # of twelve cells, four in each
    assert not pictures[0] & pictures[1]


def test_a_box_of_bccd_without_a_pixel_is_left_out(registry, tmp_path):
    info = registry["bccd"]
    base = write_miniature(info, tmp_path) / "BCCD"
    before = build(info, "val", tmp_path).targets
    picture = (base / "ImageSets/Main/test.txt").read_text().split()[0]
    file = base / "Annotations" / f"{picture}.xml"
    file.write_text(file.read_text().replace("<xmax>32<", "<xmax>0<", 1))
    assert build(info, "val", tmp_path).targets == before[1:]
