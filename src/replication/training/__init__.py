"""One training engine for every paper, on timm's parts and torch's DDP.

To read it in order: `recipes` (the fields of each kind of training), `engine` (what trains a
recipe), `loop` (a run from start to end), `step` (one optimiser step), `objective` (a paper's own
loss under the same loop), `optimizer`, `model`, `vitrail.seeding` (why no generator's state is ever
saved), `team`, then what a long run needs: `run_folder`, `checkpoint`, `journal`, `weights`.
Importing this package imports none of them.
"""

CHECKPOINTS_KEPT = 2
"""So many of a run's newest checkpoints stay: the last one may turn out to be damaged."""
