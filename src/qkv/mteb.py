"""A run that embeds texts as an encoder of the library mteb.

import mteb
mteb.evaluate(qkv.mteb.MtebEncoder("tuned"), tasks)
"""

from .runs.leaderboards.embedder import MtebEncoder

__all__ = ["MtebEncoder"]
