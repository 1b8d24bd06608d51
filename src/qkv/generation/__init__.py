"""Decoding: prompts in, continuations out. `generate` is the whole of it; `score` judges given outputs."""

from .generate import generate
from .generation_mixin import GenerationMixin
from .log_likelihood import Scores, score
from .logits_processors import Processor
from .result import Generated
from .sampling import row_seed
from .settings import Generation

__all__ = ["Generated", "Generation", "GenerationMixin", "Processor", "Scores", "generate", "row_seed", "score"]
