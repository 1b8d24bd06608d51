"""Generation: `generate` continues prompts by greedy decoding, sampling or beam search; `score` gives log-likelihoods."""

from .generate import generate
from .generation_mixin import GenerationMixin
from .log_likelihood import Scores, score
from .logits_processors import Processor
from .result import Acceptance, Generated
from .sampling import row_seed
from .settings import Generation

__all__ = [
    "Acceptance",
    "Generated",
    "Generation",
    "GenerationMixin",
    "Processor",
    "Scores",
    "generate",
    "row_seed",
    "score",
]
