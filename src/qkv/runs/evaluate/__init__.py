"""The evaluation of a run: metrics, likelihoods, and the baselines that stand beside them."""
