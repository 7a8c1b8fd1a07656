"""Planning: from the files under ``configs/`` to the nodes that make every number.

To read it in order: `schema` (strict typed YAML), `settings` and `datasets` (what one may change,
which datasets there are), `recipe` (what the kinds of training share) and `kinds` (which kinds
there are), `paper` (what a paper's folder says), `named` (names for what several places of it say),
`claims` (its statements as relations over cells), `resolution` (one paper's recipes and measures at
one scale), `catalog` (the papers at one scale, linked into runs, measurements and artifacts),
`nodes` (what is to be done, a file each) and `code` (the digest of what a number depends on).
`source` reads Python that configurations name, `weights` is the registry of published weights.
Nothing here imports torch, so that building the graph stays fast.
"""
