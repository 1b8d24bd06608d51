"""Evaluation by the tasks of lm-evaluation-harness and mteb, which leaderboards report."""
