"""The apparatus that replicates the papers: plan, engine, data, evidence, commands.

It knows no paper by name. It is used from a checkout and is not part of the wheel; `vitrail` never
imports it.
"""
