"""Position-SHAP (position, Sec. 3): `shapley` states it.

`measure` is the call for users; `sweep` is our estimator and `half_batches` the authors', and both
take the formulas from `shapley`. `kernel` is Kernel SHAP of any number of features, for comparison.
examples/position.py measures two small models.
"""
