"""Planning: derive from the files under ``configs/`` the nodes that compute every number.

Read it in this order: `replication.config` (the files as typed objects), `resolve` (the recipes and
measures of one paper at one scale), `paper` (these, linked into runs, measurements and artifacts),
`catalog` (all papers, and the nodes of the graph), `resources` (threads, GPUs, memory and time of
each step), `code_digest` and `module_digest` (the digest of the code that a number depends on),
`search_table` (trials of learning rates), `fast_dev_run` (the rehearsal of a scale) and
`preregistration` (which claims were registered before their runs began).
Nothing here imports torch, so that building the graph stays fast.
"""
