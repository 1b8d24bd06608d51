"""`Evaluation`: the `evaluation` settings of a recipe (metrics, limits, samples)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from ...core.metrics.text import LIBRARIES
from ...core.optional_libraries import command, is_installed, need
from ...core.spec import Spec

Metric = Literal[
    "exact-match",
    "bleu",
    "chrf",
    "chrf++",
    "ter",
    "rouge1",
    "rouge2",
    "rougeL",
    "wer",
    "cer",
    "perplexity",
    "bits-per-byte",
]
ROUGE: tuple[Metric, ...] = ("rouge1", "rouge2", "rougeL")
TEXT_METRICS: tuple[Metric, ...] = ("exact-match", "bleu", "chrf", "chrf++", "ter", *ROUGE, "wer", "cer")
"""Metrics that compare outputs with references."""
USUAL: tuple[Metric, ...] = ("exact-match", "bleu", "chrf", "perplexity", "bits-per-byte")  # by default, for pairs

Count = Annotated[int, Field(ge=1)]


def decoded(steps: int | None) -> int | None:
    """The number of examples to generate outputs for after a training of `steps` steps; None is no limit. Generating for all
    would take longer than a training of a few steps."""
    return None if steps is None or steps >= _SHORT else 16 + 4 * steps


_SHORT = 100


class Evaluation(Spec):
    """Settings of evaluation, during training and after it.

    metrics:   None is all that the data allow except chrF++ and TER, ROUGE (for summaries), and word and character error
               rates (wer, cer; for transcripts).
    examples:  examples of the validation split in each evaluation during training; None is all.
    num_beams: beams in evaluations during training; the evaluation after training uses `generation`.
    test_examples: examples of the test split in the evaluation after training; None is all. If outputs are generated, a
               training of less than 100 steps takes fewer, as a quick check.
    samples:   generated outputs to keep and show beside the references.
    bleu_tokenize: sacreBLEU's tokenizer, by its name there. `ja-mecab`, `ko-mecab` and the SentencePiece models (`spm`,
               `flores101`, `flores200`, `spBLEU-1K`) need the extras `ja`, `ko` and `spm`; sacreBLEU downloads these models.
    """

    metrics: tuple[Metric, ...] | None = None
    examples: Count | None = 500
    num_beams: Count = 1
    test_examples: Count | None = None
    samples: Annotated[int, Field(ge=0)] = 6
    bleu_tokenize: Literal[
        "13a", "intl", "char", "zh", "none", "ja-mecab", "ko-mecab", "spm", "flores101", "flores200", "spBLEU-1K"
    ] = "13a"

    def check_task(self, kind: str) -> None:
        """Raise ValueError for a setting of generated outputs, which the evaluation of the task `kind` doesn't have."""
        of_outputs = ("metrics", "num_beams", "bleu_tokenize")
        ignored = [name for name in of_outputs if getattr(self, name) != type(self).model_fields[name].default]
        if ignored:
            raise ValueError(
                f"evaluation.{ignored[0]} is for outputs that are compared with references, and the task {kind} has its own "
                f"metrics; leave evaluation.{ignored[0]} out"
            )

    def check_again(self, trained: Evaluation, task: str | None, num_beams: int | None) -> None:
        """Raise ValueError for settings that an evaluation after training does not use: `trained` are the run's own, `task`
        is the kind of its task, and `num_beams` was asked for."""
        if task is not None:
            self.check_task(task)
            if num_beams is not None:
                raise ValueError(f"the evaluation of the task {task} has no beam search; leave num_beams out")
        for name, instead in (("num_beams", "num_beams"), ("examples", "max_examples")):
            if getattr(self, name) != getattr(trained, name):
                raise ValueError(f"evaluation.{name} is for evaluations during training; give {instead} here")

    def wanted(self, pairs: bool) -> tuple[tuple[Metric, ...], list[str]]:
        """The metrics for `pairs` or for running text, and a sentence on usual ones that are left out, whose library is not
        installed. Raises ValueError if that is so for one that the settings name, or if it needs pairs."""
        names = self.metrics
        if names is None:
            usual = USUAL if pairs else ("perplexity", "bits-per-byte")
            absent = missing(usual)
            kept = tuple(name for name in usual if name not in absent)
            why = f"without {' and '.join(absent)}, whose library is not installed: {command(absent.values())}"
            return kept, [why] if absent else []
        need(f"evaluation.metrics={','.join(names)}", *dict.fromkeys(missing(names).values()))
        impossible = [] if pairs else [name for name in names if name in TEXT_METRICS]
        if impossible:
            raise ValueError(
                f"{impossible[0]} compares outputs with references, which running text doesn't have; "
                f"remove {impossible[0]} from evaluation.metrics"
            )
        return names, []


def missing(metrics: Iterable[str]) -> dict[str, str]:
    """The metrics whose library is not installed, each with the name of its module."""
    return {name: LIBRARIES[name] for name in metrics if name in LIBRARIES and not is_installed(LIBRARIES[name])}
