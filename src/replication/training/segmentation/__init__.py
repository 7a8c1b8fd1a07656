"""Train segmenters by MMSegmentation, resumable as all our trainings, and measure them."""

import vitrail.segmentation  # noqa: F401 - before anything of mmseg
