"""The fields of the paper's own kind of training."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Distraction:
    """Cross-entropy with so much noise, as a share of the images' deviation, on the images."""

    task: ClassVar[str] = "distraction"

    noise: float = 0.1

    def __post_init__(self) -> None:
        if self.noise < 0:
            raise ValueError("noise must be at least 0")
