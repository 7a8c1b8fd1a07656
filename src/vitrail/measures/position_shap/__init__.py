"""Position-SHAP (position, Sec. 3): `shapley` states it.

`measure` has the one call, `sweep` and `half_batches` our estimator and the authors'; `kernel` is
Kernel SHAP of any number of features.
"""
