"""What writes files that are committed: pages of docs/ and the JSON schemas of configs/.

`python -m tools.docs` and `python -m tools.schemas`, in a checkout; no part of the package.
"""
