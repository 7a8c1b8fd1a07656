"""The fields of each kind of training, one module each; nothing here imports torch.

A field decides by its value, which the recipe's hash holds: so a new field with a default makes
nothing due, and no number depends on these modules (`replication.plan.module_digest`).
"""
