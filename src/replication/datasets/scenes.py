"""The stand-in `scenes`: small labelled scenes of real digit scans and real photographs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageDraw
from torch.utils.data import Dataset

from replication.datasets.arrays import Digits
from replication.images.opening import Split, role, stream
from replication.images.photos import Box, photo

SCENES: dict[Split, int] = {"train": 200, "val": 60}
CLASSES = ("sky", "trees", "roof", "flower", *(f"digit {digit}" for digit in range(10)))
PALETTE: tuple[tuple[int, ...], ...] = (
    (135, 190, 235),
    (70, 120, 50),
    (190, 80, 40),
    (250, 170, 110),
    *(ImageColor.getrgb(f"hsv({36 * digit}, 90%, 85%)") for digit in range(10)),
)

UNLABELLED = 0
HEIGHT = 64
WIDTHS = (64, 72, 80, 88, 96)

SKY: tuple[str, Box] = ("china", (330, 0, 640, 110))
TREES: tuple[str, Box] = ("china", (0, 345, 200, 427))
ROOF: tuple[str, Box] = ("china", (185, 255, 290, 280))
FACADE: tuple[str, Box] = ("china", (100, 180, 315, 245))
FLOWER: tuple[str, Box] = ("flower", (172, 88, 442, 358))


class ComposedScenes(Dataset[tuple[Image.Image, np.ndarray]]):
    """Scenes in memory, given as pixels (H, W, 3) uint8 and masks (H, W) uint8, 1 + class."""

    def __init__(self, scenes: Iterable[tuple[np.ndarray, np.ndarray]]):
        self.scenes = list(scenes)

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Return an RGB image and its mask, (H, W) uint8 with 255 where it is to be ignored."""
        pixels, mask = self.scenes[index]
        return Image.fromarray(pixels), mask - np.uint8(1)  # zero becomes 255 by itself


def scenes(folder: Path, split: Split, seed: int = 0) -> ComposedScenes:
    """Small labelled scenes composed of real digit scans and real photographs.

    Sky above trees, a building of which only the roof is labelled, flowers, and digits: each piece
    is cut from scikit-learn's photographs or scans and pasted without blending, so every pixel
    belongs to exactly one piece and the masks are exact. The hue of a digit tells which it is, as
    colours tell many classes of natural scenes. No scan is in both splits; the photographs are.
    Each seed draws other scenes.
    """
    digits, random = Digits(split), stream("scenes/3", split, seed)
    return ComposedScenes(compose(digits, random) for _ in range(SCENES[role(split)]))


def compose(digits: Digits, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Compose the next scene: (H, W, 3) uint8, and its mask (H, W) uint8, 1 + class or 0."""
    scene = Scene(int(random.choice(WIDTHS)))
    landscape(scene, random)
    if random.rand() < 0.6:
        _building(scene, random)
    for _ in range(random.randint(1, 3)):
        _flower(scene, random)
    for _ in range(random.randint(2, 5)):
        which = random.randint(len(digits))
        _digit(scene, random, digits.images[which, ..., 0], int(digits.labels[which]))
    return scene.pixels, scene.mask


class Scene:
    """A canvas and its mask, which pieces are pasted onto.

    Attributes:
        pixels: (H, W, 3) uint8
        mask: (H, W) uint8
    """

    def __init__(self, width: int):
        self.pixels = np.zeros((HEIGHT, width, 3), dtype=np.uint8)
        self.mask = np.full((HEIGHT, width), UNLABELLED, dtype=np.uint8)

    def paste(self, piece: np.ndarray, shape: np.ndarray, top: int, left: int, label: int) -> None:
        """Paste the part of a piece (h, w, 3) that its shape (h, w) marks; what sticks out is cut.

        Its upper left pixel goes to row `top` and column `left`, which may be negative; `label` is
        `UNLABELLED` or 1 + class.
        """
        y, x = np.nonzero(shape)
        rows, columns = y + top, x + left
        inside = (rows >= 0) & (rows < HEIGHT) & (columns >= 0) & (columns < self.mask.shape[1])
        place = rows[inside], columns[inside]
        self.pixels[place] = piece[y[inside], x[inside]]
        self.mask[place] = label


def landscape(scene: Scene, random: np.random.RandomState) -> None:
    """Sky down to a wavy horizon, and trees below it."""
    width = scene.mask.shape[1]
    whole = np.ones((HEIGHT, width), dtype=bool)
    scene.paste(cut(SKY, width, HEIGHT, random), whole, 0, 0, _label("sky"))
    columns = np.arange(width)
    period, phase = random.uniform(20, 80), random.uniform(0, 2 * np.pi)
    wave = random.uniform(1, 5) * np.sin(2 * np.pi * columns / period + phase)
    horizon = random.uniform(0.35, 0.7) * HEIGHT + wave
    below = np.arange(HEIGHT)[:, None] >= horizon
    scene.paste(cut(TREES, width, HEIGHT, random), below, 0, 0, _label("trees"))


def _building(scene: Scene, random: np.random.RandomState) -> None:
    """A facade that nobody labelled, under a roof."""
    width, height = random.randint(18, 36), random.randint(10, 20)
    rise = random.randint(8, 15)
    top = random.randint(8, HEIGHT - height - rise)
    left = random.randint(0, scene.mask.shape[1] - width)
    whole = np.ones((height, width), dtype=bool)
    scene.paste(cut(FACADE, width, height, random), whole, top + rise, left, UNLABELLED)
    eaves = width + 8
    corners = [(0, rise - 1), (eaves // 4, 0), (3 * eaves // 4, 0), (eaves - 1, rise - 1)]
    shape = Image.new("1", (eaves, rise))
    ImageDraw.Draw(shape).polygon(corners, fill=1)
    roof = cut(ROOF, eaves, rise, random)
    scene.paste(roof, np.asarray(shape), top, left - 4, _label("roof"))


def _flower(scene: Scene, random: np.random.RandomState) -> None:
    """The dahlia, whole, anywhere."""
    side = random.randint(12, 29)
    name, box = FLOWER
    piece = np.asarray(photo(name).resize((side, side), Image.Resampling.BILINEAR, box))
    rows, columns = np.indices((side, side)) - (side - 1) / 2
    disc = rows**2 + columns**2 <= (side / 2) ** 2
    top, left = _place(scene, side, random)
    scene.paste(piece, disc, top, left, _label("flower"))


def _digit(scene: Scene, random: np.random.RandomState, scan: np.ndarray, digit: int) -> None:
    """A scan (8, 8) anywhere, in an ink whose hue hints at the digit: a few steps teach it."""
    side = random.randint(28, 45)
    scaled = np.asarray(Image.fromarray(scan).resize((side, side), Image.Resampling.BICUBIC))
    hue = int(36 * (digit + random.uniform(-0.3, 0.3))) % 360
    ink = ImageColor.getrgb(f"hsv({hue}, {random.randint(70, 101)}%, {random.randint(70, 101)}%)")
    piece = np.broadcast_to(ink, (side, side, 3))
    top, left = _place(scene, side, random)
    scene.paste(piece, scaled > 96, top, left, _label(f"digit {digit}"))


def cut(
    region: tuple[str, Box], width: int, height: int, random: np.random.RandomState
) -> np.ndarray:
    """Cut a random part of a region, of the piece's aspect, and scale it: (height, width, 3)."""
    name, (left, top, right, bottom) = region
    largest = min((right - left) / width, (bottom - top) / height)
    scale = random.uniform(0.6, 1) * largest
    x = random.uniform(left, right - scale * width)
    y = random.uniform(top, bottom - scale * height)
    box = (x, y, x + scale * width, y + scale * height)
    return np.asarray(photo(name).resize((width, height), Image.Resampling.BILINEAR, box))


def _place(scene: Scene, side: int, random: np.random.RandomState) -> tuple[int, int]:
    """Top and left of a square of which three quarters of each side, or more, are inside."""
    margin = side // 4
    top, left = (
        int(random.randint(-margin, length - side + margin + 1)) for length in scene.mask.shape
    )
    return top, left


def _label(name: str) -> int:
    return CLASSES.index(name) + 1
