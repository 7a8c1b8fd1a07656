"""Position-SHAP: `shapley` states it, `sweep` and `paired` estimate it (position, Sec. 3)."""
