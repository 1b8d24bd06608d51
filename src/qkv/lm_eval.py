"""A run as a model of lm-evaluation-harness.

from lm_eval import simple_evaluate
simple_evaluate(qkv.lm_eval.HarnessModel("tuned"), tasks=["hellaswag"])
"""

from .core.optional_libraries import need as _need

_need("qkv.lm_eval", "lm_eval")

from .runs.leaderboards.harness import HarnessModel  # noqa: E402

__all__ = ["HarnessModel"]
