"""Position-SHAP (position, Sec. 3): how much of a prediction is due to position.

- `shapley` (Eq. 3-5; Eq. 7-8 in closed form): the formulas; start here;
- `measure`: the call for users;
- `sweep`: our estimator; `half_batches`: the authors' (App. E). Both run the model and take the
  formulas from `shapley`;
- `kernel` (Eq. 3, Eq. 7-8): Kernel SHAP of any number of features, for comparison.

examples/position.py measures two small models.
"""
