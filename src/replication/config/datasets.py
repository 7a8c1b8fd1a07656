"""The registry of datasets, ``configs/datasets.yaml``, as typed objects.

An entry has everything about a dataset that is not code; `loader` names the function that reads its
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator
from pydantic.json_schema import SkipJsonSchema

from replication.config.recipe import Part
from replication.config.schema import Strict, load_entries
from replication.epoch_length import FIFTH
from vitrail.errors import require_known

Hex64 = Field(None, pattern="^[0-9a-f]{64}$")
Hex32 = Field(None, pattern="^[0-9a-f]{32}$")
Channels = tuple[float, float, float]
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # also used as a file name


def _stays_inside(path: str) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("leads out of its folder; write the path below it")
    return path


Inside = Annotated[str, AfterValidator(_stays_inside)]  # a path below a folder
Url = Annotated[str, Field(pattern=r"^(https?|ftp|file)://\S+$")]


class RemoteFile(Strict):
    """A file to download; an archive is unpacked into the folder that contains it."""

    name: Inside = Field(description="path inside the dataset's folder")
    url: list[Url] = Field(min_length=1, description="mirrors of the same bytes, best first")
    size: PositiveInt = Field(description="bytes")
    sha256: str | None = Hex64
    md5: str | None = Hex32

    @model_validator(mode="after")
    def _has_one_checksum(self) -> RemoteFile:
        if (self.sha256 is None) == (self.md5 is None):
            raise ValueError("give exactly one of sha256 and md5")
        return self

    @property
    def checksum(self) -> tuple[str, str]:
        """Return the algorithm and the expected hex digest."""
        return ("sha256", self.sha256) if self.sha256 else ("md5", self.md5 or "")


class Images(Strict):
    """A folder of images: `classes` folders of images, or images without class folders if it is 0.

    The images of a class may lie in folders below its own.
    """

    folder: Inside
    classes: NonNegativeInt
    images: PositiveInt | None = Field(
        description="how many; null: at least one, in folders however deep"
    )
    if_flat: str | None = Field(
        None, description="what to do with images of {folder} outside of class folders"
    )


class SegmentationSplit(Strict):
    """The folders of one split's images and masks, below the dataset's folder."""

    img_path: Inside
    seg_map_path: Inside


class SegmentationFormat(Strict):
    """How MMSegmentation reads the dataset, with mmseg's names of fields.

    The mask of image ``<img_path>/x<img_suffix>`` is ``<seg_map_path>/x<seg_map_suffix>``, where x
    may begin with folders.
    """

    type: str = Field(description="class of mmseg's datasets")
    train: SegmentationSplit
    val: SegmentationSplit
    img_suffix: str = ".jpg"
    seg_map_suffix: str = ".png"
    if_no_masks: str | None = Field(None, description="command that makes the masks in {folder}")


class DatasetInfo(Strict):
    """One dataset; `folder` is its place below the data root.

    Only the name and `version` enter a recipe's hash. If another field of `identity_fields`
    changes, the trainings and measurements on the dataset are due again, in the same folders. If
    the images change and no such field does, the version must be increased by hand. `digest`
    decides nothing; it is compared with the images that were fetched, and other images are refused.
    """

    name: SkipJsonSchema[Name]  # the entry's key
    part: SkipJsonSchema[Part] = "all"  # given by the recipe that reads it, see `of_part`
    version: PositiveInt = 1
    title: str
    short_title: str | None = Field(None, description="what the papers call it, as in a legend")
    classes: PositiveInt
    train_images: PositiveInt
    val_images: PositiveInt
    tuning_images: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="images that are trained on and held out where learning rates are tuned, if a "
        "stand-in then has fewer than it has of train and val",
    )
    split: str = Field(description="which images are train and which are val")
    mean: Channels
    std: Channels
    source: Literal["bundled", "download", "made", "manual"]
    licence: str
    homepage: str
    loader: str = Field(pattern=r"^[\w.]+:\w+$", description="module:function")
    folder: Inside = ""
    files: list[RemoteFile] = Field([], description="what `fetch` downloads")
    required: list[Inside] = Field([], description="files that the loader reads")
    images: list[Images] = Field([], description="folders of images that the loader reads")
    digest: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the decoded images and labels, which `fetch` compares",
    )
    segmentation: SegmentationFormat | None = None
    prepare: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description="module:function of this entry, of the folder, after the download if there is "
        "one, and of an empty folder; what it leaves in the latter is moved to the former",
    )
    layout: str = Field("", description="the tree below the folder, shown to people")

    @property
    def called(self) -> str:
        """Return the name that the papers use, or its own name if there is none."""
        return self.short_title or self.name

    @property
    def identity_fields(self) -> dict[str, Any]:
        """Return the fields that decide numbers, as plain data: no texts, links or places.

        They tell which images and labels there are (files by their digests), how these are read and
        normalised, and how many steps an epoch has. Functions are given by their own names, without
        those of their modules.
        """
        decided = {
            *("name", "version", "classes", "train_images", "val_images"),
            *("mean", "std", "loader", "prepare", "segmentation"),
        }
        plain = self.model_dump(
            mode="json", include=decided, exclude={"segmentation": {"if_no_masks"}}
        )
        called = {
            name: plain[name] and plain[name].partition(":")[2] for name in ("loader", "prepare")
        }
        own = {} if self.part == "all" else {"part": self.part}
        files = {file.name: file.checksum for file in self.files}
        return {**plain, **called, "files": files, **own}

    def of_part(self, part: Part) -> Self:
        """Return the entry of a part of the dataset, with the numbers of images of this part.

        `tuning` divides the training images: every fifth is held out as ``val``, and the others are
        trained on. A stand-in is instead composed anew from a part of its sources (scans, tiles),
        with as many images as before, or with `tuning_images`.
        """
        if part == self.part:
            return self
        held_out = -(-self.train_images // FIFTH)
        divided = self.train_images - held_out, held_out
        composed = self.tuning_images or (self.train_images, self.val_images)
        train, val = composed if self.source == "bundled" else divided
        counts = {"train_images": train, "val_images": val}
        return self.model_copy(update={"part": part, **counts})

    @model_validator(mode="after")
    def _has_what_its_source_needs(self) -> DatasetInfo:
        if (self.source == "download") != bool(self.files):
            raise ValueError("files belong to source 'download', which needs them")
        if self.source == "made" and not self.prepare:
            raise ValueError("source 'made' needs prepare, the function that makes it")
        if self.source != "bundled" and not (self.folder and self.layout):
            raise ValueError(f"source '{self.source}' needs folder and layout")
        return self


FEW_CLASSES = 16


def miniature_name(dataset: str) -> str:
    """Return the name of a dataset's miniature, whether or not it has one."""
    return f"{dataset}-miniature"


def miniature_of(info: DatasetInfo) -> DatasetInfo:
    """Return the entry of a dataset's miniature: a few made-up images in the dataset's own format.

    They cover all classes if these are at most `FEW_CLASSES`, so that a model is right about at
    least one image; otherwise, and for segmentation, two. Each class has one image for validation
    and four for training, the proportion in which EuroSAT is split when it is read. Classes, mean,
    std and loader are those of the dataset.
    """
    shown = info.classes if info.classes <= FEW_CLASSES and not info.segmentation else 2
    own: dict[str, object] = {
        "name": miniature_name(info.name),
        "title": f"made-up images in the format of: {info.title}",
        "train_images": 4 * shown,
        "val_images": shown,
        "source": "made",
        "prepare": "replication.datasets.miniature:write",
        "folder": f"miniatures/{info.name}",
        "digest": None,
    }
    # Without these fields, `verify` counts the images by reading the dataset.
    return info.model_copy(update={**own, "files": [], "required": [], "images": []})


def load_registry(path: Path = Path("configs/datasets.yaml")) -> dict[str, DatasetInfo]:
    """Read the registry, and add a miniature of each dataset that is downloaded or placed by hand.

    Raises VitrailError as `load_entries`.
    """
    entries = load_entries(DatasetInfo, path, "dataset")
    of_files = [info for info in entries.values() if info.source in ("download", "manual")]
    return entries | {info.name: info for info in map(miniature_of, of_files)}


def find(name: str, registry: Mapping[str, DatasetInfo]) -> DatasetInfo:
    """Look up a dataset by name; raises VitrailError, with the closest name, if it is unknown."""
    require_known("dataset", name, registry)
    return registry[name]


def fetched_with(name: str, registry: Mapping[str, DatasetInfo]) -> str:
    """Return the dataset whose fetching also brings this one's files: the first of its folder.

    Two datasets may be made of the same files, which must not be fetched twice at once.
    """
    folder = registry[name].folder
    same = (other for other, info in registry.items() if folder and info.folder == folder)
    return next(same, name)
