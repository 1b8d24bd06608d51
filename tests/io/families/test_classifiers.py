"""Classes that tell kinds of texts apart, against the Hub's own: scores, losses, gradients, directories, names."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import thinned
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

import hub_models
from hub_cases import Case, transformers
from hub_models import Inputs, Pair, inputs, made, ours, parameters, theirs
from hub_sizes import (
    ALBERT,
    BART,
    BIG_BIRD,
    BLOOM,
    DISTILBERT,
    ELECTRA,
    EOS,
    ESM,
    ESMS_NAMES,
    EXPERTS,
    FALCON,
    GEMMA,
    GPT2,
    GPTJ,
    GROUPED,
    LONGFORMER,
    MODERN,
    MPT,
    NARROW,
    OPT,
    SHARED,
    SIZES,
    T5,
    TEMPERED,
    XLM_R,
)
from test_parity import error, names_of, published, sides, their_gradients

from qkv.core.layout import Layout
from qkv.io.families import FAMILIES
from qkv.nn.models.replace import replace
from qkv.runs.inference.run import Run, load

NAMED = {"id2label": {0: "cat", 1: "dog", 2: "bee"}, "label2id": {"cat": 0, "dog": 1, "bee": 2}}


def decoder(name: str, config: dict[str, Any], **options: Any) -> Case:
    return Case(f"{name}ForSequenceClassification", {**config, **NAMED}, **options)


def reader(name: str, config: dict[str, Any], **options: Any) -> Case:
    return Case(f"{name}ForSequenceClassification", {**config, **NAMED}, does="read", **options)


CASES: dict[str, Case] = {
    "bert": reader("Bert", SIZES, types=True),
    "bert-two-labels": Case("BertForSequenceClassification", SIZES, does="read"),
    "modernbert": reader("ModernBert", MODERN),
    "modernbert-mean": reader("ModernBert", {**MODERN, "classifier_pooling": "mean", "classifier_activation": "relu"}),
    "roberta": reader("Roberta", {**SIZES, "pad_token_id": 1}),
    "distilbert": reader("DistilBert", DISTILBERT),
    "electra": reader("Electra", ELECTRA, types=True),
    "albert": reader("Albert", ALBERT, types=True),
    "longformer": reader("Longformer", LONGFORMER, lengths=(29, 14, 22), chosen=True),
    "big-bird": reader("BigBird", BIG_BIRD, lengths=(45, 30, 38)),
    "gpt2": decoder("GPT2", GPT2),
    "gpt-bigcode": decoder("GPTBigCode", GPT2),
    "gpt-neox": decoder("GPTNeoX", SIZES),
    "bloom": decoder("Bloom", BLOOM, places="relative"),
    "mpt": decoder("Mpt", MPT, places="relative"),
    "falcon": decoder("Falcon", FALCON),
    "llama": decoder("Llama", GROUPED),
    "mistral": decoder("Mistral", {**GROUPED, "sliding_window": 6}),
    "qwen2": decoder("Qwen2", GROUPED),
    "qwen3": decoder("Qwen3", {**GROUPED, "head_dim": 8}),
    "gemma2": decoder("Gemma2", GEMMA),
    "gemma3": decoder("Gemma3Text", GEMMA),
    "smollm3": decoder("SmolLM3", GROUPED),
    "phi3": decoder("Phi3", GROUPED),
    "mixtral": decoder("Mixtral", EXPERTS),
    "qwen2-moe": decoder("Qwen2Moe", SHARED),
    "qwen3-moe": decoder("Qwen3Moe", {**NARROW, "head_dim": 12}),
    "bart": decoder("Bart", BART, does="translate", places="counted"),
    "t5": decoder("T5", T5, does="translate", places="counted"),
    "mt5": decoder("MT5", {**T5, "feed_forward_proj": "gated-gelu"}, does="translate", places="counted"),
    "xlm-roberta": reader("XLMRoberta", XLM_R, slow=True),
    "camembert": reader("Camembert", XLM_R, slow=True),
    "mpnet": reader("MPNet", SIZES, slow=True),
    "nomic-bert": reader("NomicBert", SIZES, types=True, slow=True),
    "esm": reader("Esm", {**ESM, "position_embedding_type": "rotary"}, slow=True, renamed=ESMS_NAMES),
    "opt": decoder("OPT", OPT, slow=True),
    "gptj": decoder("GPTJ", GPTJ, slow=True),
    "gemma": decoder("Gemma", {**GROUPED, "head_dim": 8}, slow=True),
    "olmo3": decoder("Olmo3", {**GROUPED, "sliding_window": 4}, slow=True),
    "ministral3": decoder("Ministral3", {**GROUPED, "head_dim": 8, **TEMPERED}, slow=True),
    "ministral": decoder("Ministral", {**GROUPED, "head_dim": 8}, slow=True),
    "mbart": decoder("MBart", BART, does="translate", places="counted", slow=True),
    "umt5": decoder("UMT5", T5, does="translate", places="counted", slow=True),
}
every = pytest.mark.parametrize("name", parameters(CASES))


@functools.cache
def pair(name: str) -> Pair:
    return made(CASES[name], name)


def texts(case: Case, side: str = "right") -> Inputs:
    """A padded batch. Of an encoder–decoder, the decoder reads the source too, after its starting token: its last state is
    that of the end of the sequence."""
    given = inputs(case, side)
    if given.source is not None and given.source_mask is not None:
        last = given.source_mask.sum(1, keepdim=True) - 1
        given.source = given.source.scatter(1, last, EOS)
        given.ids, given.mask = F.pad(given.source, (1, -1), value=1), given.source_mask
    return given


@every
@torch.no_grad()
def test_scores_match_transformers(name: str) -> None:
    both = pair(name)
    for side in sides(both.case):
        given = texts(both.case, side)
        found = ours(both, given)
        assert found.shape == (3, 2 if name == "bert-two-labels" else 3)
        assert error(found, theirs(both, given)) <= 1e-5, side


def answered(both: Pair, given: Inputs, **more: Any) -> Any:
    """All that their model gives."""
    kept = []

    def told(**options: Any) -> Any:
        kept.append(both.theirs(**options, **more))
        return kept[0]

    theirs(both, given, told)
    return kept[0]


def both_losses(both: Pair, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Our loss and the loss of their class, each the mean over labels."""
    given = texts(both.case)
    sums = ours(both, given, labels=labels)
    return sums.loss / int(sums.n_labels), answered(both, given, labels=labels).loss


@every
def test_the_loss_and_the_gradient_of_every_parameter(name: str, tmp_path: Path) -> None:
    both = pair(name)
    both.theirs.zero_grad()
    both.ours.zero_grad()
    found, expected = both_losses(both, torch.tensor([1, 0, 1]))
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    mine = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in both.ours.named_parameters()}
    wanted = names_of(both).to_ours(their_gradients(both, tmp_path))
    largest = max(float(grad.norm()) for grad in mine.values())  # some gradients are 0 but for rounding
    for parameter, grad in mine.items():
        scale = float(wanted[parameter].norm()) + 1e-2 * largest
        assert float((grad - wanted[parameter]).norm()) <= 2e-5 * scale, parameter
    both.ours.zero_grad()


@pytest.mark.parametrize("count", [1, 4])
@torch.no_grad()
def test_labels_that_are_numbers(count: int) -> None:
    """One is a number to be met, several are a yes or no each."""
    both = made(Case("BertForSequenceClassification", {**SIZES, "num_labels": count}, does="read"), "numbers")
    labels = torch.tensor([[0.2], [1.0], [0.7]]) if count == 1 else torch.eye(4)[[1, 3, 3]]
    torch.testing.assert_close(*both_losses(both, labels.squeeze(-1)))
    with pytest.raises(ValueError, match=rf"labels that are numbers are \(3, {count}\) here, not"):
        ours(both, texts(both.case), labels=torch.rand(3, 2))


# -- the pooler, and the next sentence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert-bare", "roberta-bare", "longformer-bare", "big-bird-bare"])
@torch.no_grad()
def test_what_the_pooler_gives(name: str) -> None:
    both = hub_models.pair(name)
    given = inputs(both.case)
    layout = Layout.from_mask(given.mask)
    layout = layout if given.chosen is None else layout.with_global(given.chosen)
    found = both.ours.pooled(given.ids, layout=layout, token_types=given.types)
    assert error(found, answered(both, given).pooler_output) <= 1e-5


@pytest.mark.parametrize("name", ["bert-pretraining", "big-bird-pretraining", "next-sentence"])
@torch.no_grad()
def test_whether_the_next_sentence_follows(name: str, tmp_path: Path) -> None:
    only = Case("BertForNextSentencePrediction", SIZES, does="read", types=True)
    both = made(only, name) if name == "next-sentence" else hub_models.pair(name)
    given = inputs(both.case)
    out = answered(both, given)
    expected = out.logits if name == "next-sentence" else out.seq_relationship_logits
    found = both.ours.classify(given.ids, attention_mask=given.mask, token_types=given.types)
    assert error(found, expected) <= 1e-5
    saved = both.run.save(tmp_path / "saved", to="hub")
    before, after = load_file(both.folder / "model.safetensors"), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[tensor], after[tensor]) for tensor in before)


# -- directories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", thinned(parameters(CASES)))
def test_there_and_back(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    assert {path.name for path in saved.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    config = json.loads((both.folder / "config.json").read_text())
    assert json.loads((saved / "config.json").read_text()) == config
    before, after = (published(both.case, load_file(path / "model.safetensors")) for path in (both.folder, saved))
    assert before.keys() == after.keys()
    for tensor in before:
        assert torch.equal(before[tensor], after[tensor]), tensor
    assert load(saved, device="cpu").model.spec == both.ours.spec


@every
@torch.no_grad()
def test_from_the_spec_alone_auto_classes_load_it(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    config = {"pad_token_id": both.theirs.config.pad_token_id, "eos_token_id": EOS, "bos_token_id": 1}
    config |= FAMILIES[both.run.origin.config["model_type"]].config(both.ours.spec)
    (saved / "config.json").write_text(json.dumps(config))
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        saved, output_loading_info=True, attn_implementation="eager"
    )
    assert type(model).__name__ == both.case.cls and not any(info.values()), info
    given = texts(both.case)
    assert torch.equal(theirs(both, given, model.eval()), theirs(both, given))


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_names_of_classes_stay_when_something_else_changes(name: str, tmp_path: Path) -> None:
    run = pair(name).run
    changes = {"decoder.blocks.*.attention.n_kv_heads": 1} if name == "llama" else {"max_positions": 20}
    saved = Run(replace(run.model, changes).model, None, task=run.task, origin=run.origin).save(
        tmp_path / "a", to="hub"
    )
    config = json.loads((saved / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "bee"} and config["label2id"] == NAMED["label2id"]
    more = replace(run.model, {"head.labels": 4})
    assert more.new[-1].startswith("head.out")
    saved = Run(more.model, None, task=run.task, origin=run.origin).save(tmp_path / "b", to="hub")
    assert json.loads((saved / "config.json").read_text())["id2label"] == {str(i): f"LABEL_{i}" for i in range(4)}
    assert load(saved, device="cpu").model.spec == more.model.spec


def test_names_of_classes_that_a_language_model_does_not_use_stay_too(tmp_path: Path) -> None:
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**{**SIZES, **NAMED}))
    theirs.save_pretrained(tmp_path / "theirs")
    run = load(tmp_path / "theirs", device="cpu")
    shorter = Run(replace(run.model, {"max_positions": 20}).model, None, task="read", origin=run.origin)
    config = json.loads((shorter.save(tmp_path / "ours", to="hub") / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "bee"} and config["max_position_embeddings"] == 20


def test_dropout_of_the_classifier_is_what_is_said(tmp_path: Path) -> None:
    for said, wanted in ({}, 0.1), ({"classifier_dropout": 0.3}, 0.3):
        folder = tmp_path / str(wanted)
        config = transformers.BertConfig(**SIZES, **said)
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
        assert load(folder, device="cpu").model.spec.head.dropout == wanted


def test_there_is_nothing_to_generate() -> None:
    with pytest.raises(ValueError, match=r"this model's head, .*, predicts no tokens"):
        pair("llama").ours.generate(torch.tensor([[7, 8]]), max_new_tokens=2)


# -- parts that a file may lack ----------------------------------------------------------------------------------------

IMAGES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGES |= {"image_size": 12, "patch_size": 4}


@pytest.mark.parametrize(
    "name, config",
    [("Bert", SIZES), ("Roberta", SIZES), ("BigBird", BIG_BIRD), ("ViT", IMAGES), ("DeiT", IMAGES)],
)
@torch.no_grad()
def test_a_model_without_its_pooler(name: str, config: dict[str, Any], tmp_path: Path) -> None:
    cls = getattr(transformers, f"{name}Model")
    theirs = cls(cls.config_class(**config), add_pooling_layer=False).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    run = load(tmp_path / "theirs", device="cpu")
    given = torch.randn(2, 3, 12, 12) if config is IMAGES else torch.randint(6, 90, (2, 30))
    assert run.model.classification_head is None
    assert error(run.model(given), theirs(given).last_hidden_state) <= 1e-5
    saved = run.save(tmp_path / "ours", to="hub")
    assert json.loads((saved / "config.json").read_text()) == json.loads((tmp_path / "theirs/config.json").read_text())
    _, info = cls.from_pretrained(saved, output_loading_info=True, add_pooling_layer=False)
    assert not any(info.values()), info
    assert load(saved, device="cpu").model.spec == run.model.spec
