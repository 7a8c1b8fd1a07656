"""Position-SHAP (position, Sec. 3): `shapley` states it.

`sweep` and `paired` estimate it, ours and the authors' way; `kernel` is Kernel SHAP in general.
"""
