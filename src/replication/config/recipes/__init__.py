"""The fields of each kind of training, in one module each; nothing here imports torch.

A field decides a result only by its value, which enters the recipe's hash. So a new field with a
default makes nothing due, and the code of these modules enters no digest
(`replication.plan.module_digest`).
"""
