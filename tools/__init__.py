"""What writes files that are generated: committed pages of docs/, and JSON schemas of configs/.

`python -m tools.docs` and `make schemas`, in a checkout; no part of the package.
"""
