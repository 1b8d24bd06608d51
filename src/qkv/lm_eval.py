"""A run as a model of lm-evaluation-harness.

from lm_eval import simple_evaluate
simple_evaluate(qkv.lm_eval.HarnessModel("tuned"), tasks=["hellaswag"])
"""

from .runs.leaderboards.harness import HarnessModel

__all__ = ["HarnessModel"]
