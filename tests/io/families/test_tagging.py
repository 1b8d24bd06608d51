"""Classes that label each token, against the Hub's own: scores, losses, directories, files with a pooler."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import thinned
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import Case
from hub_models import Pair, inputs, made, ours, parameters, theirs
from hub_sizes import (
    ALBERT,
    BIG_BIRD,
    BLOOM,
    DISTILBERT,
    ELECTRA,
    ESM,
    ESMS_NAMES,
    EXPERTS,
    FALCON,
    GEMMA,
    GPT2,
    GROUPED,
    LONGFORMER,
    MODERN,
    MPT,
    NARROW,
    SHARED,
    SIZES,
    TEMPERED,
    XLM_R,
)
from test_parity import error, published

from qkv.nn.models.heads.text import Span, TokenClassifier
from qkv.runs.inference.run import load

LABELS = ("O", "B-PER", "I-PER")
NAMED = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
PADDED = {**SIZES, "pad_token_id": 1}


def case(name: str, config: dict[str, Any], does: str = "read", **options: Any) -> Case:
    return Case(f"{name}ForTokenClassification", {**config, **NAMED}, does=does, labels=3, **options)


DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt-bigcode": ("GPTBigCode", GPT2),
    "gpt-neox": ("GPTNeoX", SIZES),
    "bloom": ("Bloom", BLOOM),
    "falcon": ("Falcon", FALCON),
    "mpt": ("Mpt", MPT),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", GROUPED),
    "mixtral": ("Mixtral", EXPERTS),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", GROUPED),
    "qwen2-moe": ("Qwen2Moe", SHARED),
    "qwen3-moe": ("Qwen3Moe", NARROW),
    "gemma2": ("Gemma2", GEMMA),
    "smollm3": ("SmolLM3", GROUPED),
    "phi3": ("Phi3", GROUPED),
}
UNDROPPED = ("bloom", "falcon", "modernbert")  # their configurations say that nothing is, by default


CASES = {
    "bert": case("Bert", SIZES, types=True),
    "modernbert": case("ModernBert", MODERN),
    "roberta": case("Roberta", PADDED),
    "distilbert": case("DistilBert", DISTILBERT),
    "electra": case("Electra", ELECTRA, types=True),
    "albert": case("Albert", ALBERT, types=True),
    "longformer": case("Longformer", LONGFORMER, lengths=(29, 14, 22), chosen=True),
    "big-bird": case("BigBird", BIG_BIRD, lengths=(45, 30, 38)),
    **{
        name: case(*of, "continue", places="relative" if name in ("bloom", "mpt") else "given")
        for name, of in DECODERS.items()
    },
    "xlm-roberta": case("XLMRoberta", XLM_R, slow=True),
    "camembert": case("Camembert", XLM_R, slow=True),
    "mpnet": case("MPNet", SIZES, slow=True),
    "nomic-bert": case("NomicBert", {**SIZES, "hidden_dropout_prob": 0.1}, types=True, slow=True),
    "esm": case("Esm", {**ESM, "hidden_dropout_prob": 0.1}, slow=True, renamed=ESMS_NAMES),
    "gemma": case("Gemma", {**GROUPED, "head_dim": 8}, "continue", slow=True),
    "ministral3": case("Ministral3", {**GROUPED, "head_dim": 8, **TEMPERED}, "continue", slow=True),
    "ministral": case("Ministral", {**GROUPED, "head_dim": 8}, "continue", slow=True),
}
every = pytest.mark.parametrize("name", parameters(CASES))


@functools.cache
def pair(name: str) -> Pair:
    return made(CASES[name], name)


@every
@torch.no_grad()
def test_scores_of_every_real_token(name: str) -> None:
    both = pair(name)
    head = both.ours.spec.head
    assert isinstance(head, TokenClassifier) and head.dropout == (0.0 if name in UNDROPPED else 0.1)
    given = inputs(both.case)
    real = given.mask.bool()
    found = ours(both, given)
    assert found.shape[-1] == 3
    assert error(found[real], theirs(both, given)[real]) <= 1e-5


@every
def test_losses_match_transformers(name: str) -> None:
    both = pair(name)
    given = inputs(both.case)
    labels = (given.ids % 3).masked_fill(given.mask == 0, -100)
    said, kept = ours(both, given, labels=labels), []

    def told(**options: Any) -> Any:
        kept.append(both.theirs(**options, labels=labels))
        return kept[0]

    theirs(both, given, told)
    assert float((said.loss / said.n_labels).detach()) == pytest.approx(float(kept[0].loss.detach()), rel=1e-5)


@pytest.mark.parametrize("name", thinned(parameters(CASES)))
def test_a_directory_goes_there_and_back(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    config = json.loads((saved / "config.json").read_text())
    assert config["architectures"] == [CASES[name].cls]
    assert list(config["id2label"].values()) == list(LABELS)
    before, after = (published(both.case, load_file(path / "model.safetensors")) for path in (both.folder, saved))
    assert before.keys() == after.keys() and all(torch.equal(before[tensor], after[tensor]) for tensor in before)


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_a_file_may_hold_the_pooler_that_nothing_reads(head: str, tmp_path: Path) -> None:
    """As the first checkpoints of both classes do; the file's own class is meant, not one whose tensors are the same."""
    both = made(Case(f"BertFor{head}", SIZES, does="read"), head)
    tensors = load_file(both.folder / "model.safetensors")
    pooler = {"bert.pooler.dense.weight": torch.randn(32, 32), "bert.pooler.dense.bias": torch.randn(32)}
    save_file({**tensors, **pooler}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((both.folder / "config.json").read_text())
    run = load(tmp_path, device="cpu")
    assert isinstance(run.model.spec.head, Span if head == "QuestionAnswering" else TokenClassifier)
    ids = torch.arange(6, 15)[None]
    assert torch.equal(run.model(ids), both.ours(ids))
    assert load_file(run.save(tmp_path / "saved") / "model.safetensors").keys() == tensors.keys() | pooler.keys()
