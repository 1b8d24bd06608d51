"""Classes that find answers in a text, against the Hub's own: scores, losses, directories."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import Case
from hub_models import Pair, inputs, made, ours, parameters, theirs
from hub_sizes import (
    ALBERT,
    BART,
    BIG_BIRD,
    DISTILBERT,
    ELECTRA,
    GPTJ,
    GROUPED,
    LONGFORMER,
    OPT,
    SIZES,
    TEMPERED,
    XLM_R,
)
from test_parity import error

from qkv.core.layout import Layout
from qkv.io.families import FAMILIES
from qkv.nn.models.heads.text import Span

CASES = {
    "bert": Case("BertForQuestionAnswering", SIZES, does="read", types=True),
    "roberta": Case("RobertaForQuestionAnswering", {**SIZES, "pad_token_id": 1}, does="read"),
    "distilbert": Case("DistilBertForQuestionAnswering", DISTILBERT, does="read"),
    "albert": Case("AlbertForQuestionAnswering", ALBERT, does="read", types=True),
    "electra": Case("ElectraForQuestionAnswering", ELECTRA, does="read", types=True),
    "longformer": Case("LongformerForQuestionAnswering", LONGFORMER, does="read", lengths=(29, 14, 22), chosen=True),
    "big-bird": Case(
        "BigBirdForQuestionAnswering",
        {**BIG_BIRD, "hidden_act": "relu", "sep_token_id": 2},
        does="read",
        types=True,
        lengths=(45, 30, 38),
    ),
    "bart": Case("BartForQuestionAnswering", BART, does="translate", places="counted"),
    "mbart": Case("MBartForQuestionAnswering", BART, does="translate", places="counted", slow=True),
    "xlm-roberta": Case("XLMRobertaForQuestionAnswering", XLM_R, does="read", slow=True),
    "camembert": Case("CamembertForQuestionAnswering", XLM_R, does="read", slow=True),
    "mpnet": Case("MPNetForQuestionAnswering", SIZES, does="read", slow=True),
    "opt": Case("OPTForQuestionAnswering", OPT, slow=True),
    "gptj": Case("GPTJForQuestionAnswering", GPTJ, slow=True),
    "ministral3": Case("Ministral3ForQuestionAnswering", {**GROUPED, "head_dim": 8, **TEMPERED}, slow=True),
}
every = pytest.mark.parametrize("name", parameters(CASES))


@functools.cache
def pair(name: str) -> Pair:
    return made(CASES[name], name)


class _Both:
    """Their two outputs as one."""

    def __init__(self, out: Any) -> None:
        self.last_hidden_state = self.logits = torch.stack([out.start_logits, out.end_logits], -1)


def scores(both: Pair, given: Any) -> Tensor:
    return theirs(both, given, lambda **options: _Both(both.theirs(**options)))


@every
@torch.no_grad()
def test_scores_of_every_real_token(name: str) -> None:
    both = pair(name)
    assert isinstance(both.ours.spec.head, Span)
    given = inputs(both.case)
    real = given.mask.bool()
    assert error(ours(both, given)[real], scores(both, given)[real]) <= 1e-5


@every
def test_losses_of_rows_without_padding(name: str) -> None:
    """Theirs counts padding as a place where an answer may be; ours does not, so they agree if there is none."""
    both = pair(name)
    given = inputs(both.case)
    alone = given.ids[given.mask.all(1)]
    labels = torch.tensor([[1, 3], [0, 0], [2, 2]])[: len(alone)]
    layout = Layout.full(alone.shape[1])
    if both.case.does == "translate":  # their decoder reads the same text, after its starting token
        start = torch.full_like(alone[:, :1], both.theirs.config.decoder_start_token_id)
        first = alone[:, -1:] if FAMILIES[both.theirs.config.model_type].wraps else start
        target = torch.cat([first, alone[:, :-1]], 1)
        ours_ = both.ours(alone, target, layout=layout, target_layout=layout, labels=labels)
    else:
        ours_ = both.ours(alone, layout=layout, labels=labels)
    usual = {"global_attention_mask": both.case.chosen, "token_type_ids": both.case.types}
    out = both.theirs(input_ids=alone, **{key: torch.zeros_like(alone) for key, read in usual.items() if read})
    losses = [F.cross_entropy(side, labels[:, k]) for k, side in enumerate((out.start_logits, out.end_logits))]
    torch.testing.assert_close(ours_.loss / ours_.n_labels, sum(losses) / 2, atol=1e-5, rtol=1e-5)


@every
def test_a_directory_goes_there_and_back(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    assert json.loads((saved / "config.json").read_text())["architectures"] == [CASES[name].cls]
    before, after = load_file(both.folder / "model.safetensors"), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[tensor], after[tensor]) for tensor in before)
