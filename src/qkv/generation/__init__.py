"""Decoding: prompts in, continuations out. `generate` is the whole of it; `score` judges given outputs."""

from .generate import generate
from .mixin import Generates
from .processors import Processor
from .result import Generated
from .sampling import row_seed
from .scoring import Scores, score
from .settings import Generation

__all__ = ["Generated", "Generates", "Generation", "Processor", "Scores", "generate", "row_seed", "score"]
