"""One training engine for every paper, on timm's parts and torch's DDP.

To read it in order: `loop` (a run from start to end), `step` (one optimiser step and the state
that it changes), `optimizer` and `mixing` (what the recipe asks of timm), `model`, `seeding` (why
no generator's state is ever saved), `team` (several processes), then what a long run needs:
`checkpoint`, `lock`, `interruption`, `journal`, `attempts`. Importing this package imports none of
them: a paper's measures take `seeding` without what only a training needs.
"""
