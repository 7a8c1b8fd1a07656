"""Planning: from the files under ``configs/`` to the jobs that make every number.

To read it in order: `schema` (strict typed YAML), `settings` and `datasets` (what one may change,
which datasets there are), `recipe` (what the kinds of training share) and `kinds` (which kinds
there are), `paper` (what a paper's folder says), `named` (names for what several places of it say),
`claims` (its statements as relations over cells), `resolution` (one paper's recipes and measures at
one scale), `catalog` (the papers at one scale, linked into runs, measurements and artifacts),
`nodes` (the files that jobs are) and `code` (what a number depends on in the code, as a digest).
`source` reads Python that configurations name, `weights` is the registry of published weights.
Nothing here imports torch, so that building the graph stays fast.
"""
