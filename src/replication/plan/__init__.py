"""Planning: from the files under ``configs/`` to the nodes that make every number.

To read it in order: `replication.config` (what the files say, typed), `resolve` (one paper's
recipes and measures at one scale), `catalog` (the papers at one scale, linked into runs,
measurements and artifacts), `resources` (threads, GPUs, memory and time of each step),
`code_digest` and `module_digest` (the digest of the code that a number depends on),
`search_table` (trials of learning rates), `fast_dev_run` (the rehearsal of a scale) and
`preregistration` (which claims were fixed before their runs).
Nothing here imports torch, so that building the graph stays fast.
"""
