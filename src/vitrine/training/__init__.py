"""One training engine for every paper, on timm's parts and torch's DDP.

To read it in order: `engine` (what trains a recipe), `loop` (a run from start to end), `step` (one
optimiser step and the state that it changes), `optimizer`, `model`, `seeding` (why no generator's
state is ever saved), `team` (several processes, and signals), then what a long run needs:
`run_folder`, `checkpoint`, `journal`, `weights`. Importing this package imports none of them: a
paper's measures take `seeding` without what only a training needs.
"""
