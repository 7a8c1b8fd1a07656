"""``python -m vitrail``: the steps of the graph, where the apparatus is installed."""

from importlib import import_module

import_module("replication.__main__").run_as_module()
