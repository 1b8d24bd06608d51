"""Decoders of the Hub that classify a text or its tokens, asked: what `transformers` says of the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from qkv.runs.inference.run import Run, load

transformers = pytest.importorskip("transformers", reason="answers are compared with Hugging Face's transformers")

TEXTS = ["Ada lives in Oslo, and Ben's tuba in Norway.", "who?", "Ben  plays the tuba. "]
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
}
BOS, EOS, PAD = 0, 1, 2


def byte_level(template: str = "") -> Any:
    """GPT-2's, which puts nothing around a text; `template` says what else does."""
    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    raw.train_from_iterator(TEXTS * 4, trainer)
    if template:
        raw.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    return raw


def of_hub(
    folder: Path, cls: str, labels: tuple[str, ...], template: str = "", pad: str = "<pad>"
) -> tuple[Any, Any, Run]:
    family = cls.partition("For")[0]
    raw = byte_level(template)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64} if family == "GPT2" else SIZES
    config = getattr(transformers, f"{family}Config")(
        **sizes,
        vocab_size=raw.get_vocab_size(),
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=raw.token_to_id(pad),
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    torch.manual_seed(7)
    theirs = getattr(transformers, cls)(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5 if parameter.ndim > 1 else 0)
    theirs.save_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token=pad
    )
    tokenizer.save_pretrained(folder)
    return theirs, tokenizer, load(folder, device="cpu")


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Qwen2"])
@pytest.mark.parametrize(
    ("template", "pad"), [("", "<pad>"), ("<s> $A", "</s>"), ("<s> $A </s>", "<pad>"), ("<s> $A </s>", "</s>")]
)
def test_classes_by_the_last_token_that_is_no_padding(tmp_path: Path, family: str, template: str, pad: str) -> None:
    """Beside longer texts too; if `</s>` ends a text and pads as well, theirs reads the token before it."""
    theirs, tokenizer, run = of_hub(tmp_path, f"{family}ForSequenceClassification", ("a", "b", "c"), template, pad)
    pipeline = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer, top_k=None, device="cpu")
    for one, wanted in zip(run.predict(TEXTS), pipeline(TEXTS, batch_size=3), strict=True):
        shares = {row["label"]: row["score"] for row in wanted}
        assert one.value.probabilities == pytest.approx(shares, abs=1e-5)


@pytest.mark.parametrize("family", ["GPT2", "Llama", "Qwen2"])
@pytest.mark.parametrize("template", ["", "<s> $A"])
def test_tags_and_entities(tmp_path: Path, family: str, template: str) -> None:
    """What stands around a text is what the tokenizer's file says: mostly nothing."""
    theirs, tokenizer, run = of_hub(tmp_path, f"{family}ForTokenClassification", TAGS, template)
    pipeline = transformers.pipeline(
        "token-classification", model=theirs, tokenizer=tokenizer, ignore_labels=[], device="cpu"
    )
    seen = set[str]()
    for text, one in zip(TEXTS, run.predict(TEXTS), strict=True):
        by_start: dict[int, str] = {}
        for token in pipeline(text):
            start = token["start"] + (text[token["start"]] == " ")  # theirs begins at the space before a word
            by_start.setdefault(start, token["entity"])
        at = 0
        for word, tag in zip(one.fields["words"], one.value, strict=True):
            at = text.index(word, at)
            assert tag == by_start[at]
            seen.add(tag)
    assert len(seen) > 1


def test_what_was_tagged_is_saved_and_asked_again(tmp_path: Path) -> None:
    *_, run = of_hub(tmp_path / "theirs", "LlamaForTokenClassification", TAGS)
    saved = run.save(tmp_path / "saved", to="hub")
    assert [one.text for one in load(saved, device="cpu").predict(TEXTS)] == [one.text for one in run.predict(TEXTS)]
