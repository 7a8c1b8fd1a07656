"""One training engine for every paper, on timm's parts and torch's DDP.

To read it in order: `replication.config.recipes` (the fields of each kind of training), `dispatch`
(which module trains a recipe), `loop` (a run from start to end), `step` (one optimizer step),
`optimizer`, `validation`, `custom_training` (a paper's own loss under the same loop),
`distributed` (the processes of one training), then what a long run needs: `run_folder`,
`checkpoint`, `training_log`, `weights`. `vitrail.seeding` says why no generator's state is saved.
Importing this package imports none of them.
"""

CHECKPOINTS_KEPT = 2
"""How many of a run's newest checkpoints are kept: more than 1, as the last may be damaged."""
