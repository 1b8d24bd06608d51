"""How good sentences about pictures are: written greedily from the pixels, beside the truth."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from ...core.batch import IGNORE, Batch
from ..encoding import Encoder
from ..images import pictured
from ..judge import Judge, Measured
from ..png import png

_KEPT = 32  # pictures kept to be shown


class Captioned(Judge):
    """exact: the share of outputs that are the truth to the letter, and of captions and answers each where there are both;
    bleu: of the captions (Papineni et al. 2002), by sacreBLEU.

    `longest` bounds what is written, in tokens.
    """

    def __init__(
        self, tokenizer: Encoder | None, longest: int, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        assert tokenizer is not None and tokenizer.eos_id is not None
        self._tokenizer, self._longest, self._scale = cast(Any, tokenizer), longest, (mean, std)
        self._shown: list[dict[str, Any]] = []

    def read(self, model: nn.Module, batch: Batch) -> None:
        prompts = _prompts(batch)
        width, end = max(map(len, prompts)), self._tokenizer.eos_id
        limit = max(self._longest - width, 1)
        written = cast(Any, model).generate(
            batch.inputs["ids"], target=prompts, eos_id=end, pad_id=end, max_new_tokens=limit
        )
        for row, about in enumerate(batch.texts):
            ids = written[row, width:].tolist()
            output = self._tokenizer.decode(ids[: ids.index(end)] if end in ids else ids)
            one = {"source": about["question"], "output": output, "target": about["answer"]}
            if len(self._shown) < _KEPT:
                pixels = pictured(batch.inputs["ids"][row].cpu().numpy(), *self._scale)
                one["picture"] = {"kind": "image", "image": png(pixels)}
            self._shown.append(one)

    def found(self) -> dict[str, Measured]:
        asked = [one for one in self._shown if one["source"]]
        said = [one for one in self._shown if not one["source"]]
        found = {"exact": _exact(self._shown)}
        if asked and said:
            found |= {"exact_captions": _exact(said), "exact_answers": _exact(asked)}
        if said:
            from sacrebleu.metrics import BLEU

            metric = BLEU()
            score = metric.corpus_score([one["output"] for one in said], [[one["target"] for one in said]])
            found["bleu"] = Measured(float(score.score), str(metric.get_signature()))
        return found

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [one for one in self._shown if "picture" in one][:count]


def _prompts(batch: Batch) -> list[list[int]]:
    """Of each row's decoder, the tokens before the first that is learned."""
    assert batch.labels is not None
    first = (batch.labels != IGNORE).to(torch.int8).argmax(1).tolist()
    return [row[: n + 1] for row, n in zip(batch.inputs["target"].tolist(), first, strict=True)]


def _exact(shown: list[dict[str, Any]]) -> Measured:
    right = sum(one["output"].strip() == one["target"].strip() for one in shown)
    return Measured(right / len(shown), f"of {len(shown):,}, to the letter")
