"""Write generated files: pages of docs/, which are committed, and JSON schemas of configs/.

Call them in a checkout by `python -m tools.docs` and `make schemas`. They are not part of the
package.
"""
