"""The training of segmenters by MMSegmentation under our rules of resuming, and their measures."""

import vitrail.segmentation  # noqa: F401 - before anything of mmseg
