"""Stand-ins of the laptop scale: small datasets composed of real scans and real photographs.

Each has, by construction, the property on which a paper's claims depend, and is made from a fixed
seed. There is one module for each paper. Stand-ins are composed of the scans of
`replication.datasets.arrays.scans` and of tiles of the photographs of `replication.images.photos`.
"""
