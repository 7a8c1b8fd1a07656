"""Stand-ins of the laptop scale: small datasets composed of real scans and real photographs.

Each has, by construction, the property that a paper's claims are about, and is made from a fixed
seed. One module for each paper composes its own, of `replication.datasets.arrays.scans` and tiles
of `replication.images.photos`.
"""
