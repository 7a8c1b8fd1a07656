"""What the ``vitrine`` command does, one module per command.

Each has one function that does the work and prints it; `vitrine.cli` parses the command line and
calls it. `cost` is the cost model, `state` what is on disk, `console` how tables are printed.
"""
