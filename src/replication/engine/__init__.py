"""One training engine for every paper, on timm's parts and torch's DDP.

To read it in order: `engine` (what trains a recipe), `loop` (a run from start to end), `step` (one
optimiser step), `optimizer`, `model`, `seeding` (why no generator's state is ever saved), `team`,
then what a long run needs: `run_folder`, `checkpoint`, `journal`, `weights`. Importing this package
imports none of them.
"""
