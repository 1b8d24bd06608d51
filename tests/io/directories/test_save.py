"""Models in the Hub's format: transformers computes the same, also if they are pruned, and reads the same tokens."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import tokenizers
import torch
from made_tokenizers import made
from tokenizers import processors
from torch import nn

from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.data.tokenizers.tokenizer_json import TokenizerExtra
from qkv.io.directories.run_config import Use
from qkv.io.directories.save import save
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.pruning.remove import remove_heads
from qkv.runs.inference.run import Run, load

SIZES = {"vocab_size": 11, "d_model": 24, "n_layers": 2, "n_heads": 6}


def llama(heads: dict[str, list[int]], **more: int) -> nn.Module:
    return remove_heads(build(preset("llama", **SIZES, **more), seed=0).eval(), heads)


@torch.no_grad()
def test_a_llama_with_fewer_heads_of_the_same_width(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    model = llama({"decoder.0": [2, 3], "decoder.1": [0, 1]}, n_kv_heads=3)
    save(model, tmp_path, "hub")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert (theirs.config.num_attention_heads, theirs.config.num_key_value_heads, theirs.config.head_dim) == (4, 2, 4)
    ids = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(theirs(ids).logits, model(ids), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"decoder.0": [1], "decoder.1": [0]}, "llama needs a number of heads that divides its width in transformers"),
        ({"decoder.0": [1, 2]}, "blocks.1.attention.n_heads is 4 there and 6 here"),
    ],
)
def test_what_no_family_says_is_told(heads: dict[str, list[int]], message: str, tmp_path: Path):
    with pytest.warns(UserWarning, match=message):
        save(llama(heads), tmp_path / "out", "hub")


SMALL = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}
OWN = {"none": "", "beginning": "<s> $A", "both": "<s> $A </s>", "end": "$A </s>"}


USES = ("continue", "answer", "translate", "read")
FAST = {("continue", "none"), ("continue", "end"), ("answer", "none"), ("translate", "both"), ("read", "none")}
CASES = [pytest.param(task, own, marks=[] if (task, own) in FAST else pytest.mark.slow) for task in USES for own in OWN]


@pytest.mark.parametrize(("task", "own"), CASES)
def test_transformers_reads_texts_with_the_special_tokens_of_training(task: Use, own: str, tmp_path: Path) -> None:
    """Also if the tokenizer's file had another template, and flags that count before the template."""
    transformers = pytest.importorskip("transformers")
    kind = {"translate": "transformer-base", "read": "bert-base"}.get(task, "llama")
    raw = tokenizers.Tokenizer.from_str(made("bpe").raw.to_str())
    if own != "none":
        special = [("<s>", made("bpe").id("<s>")), ("</s>", made("bpe").id("</s>"))]
        template = processors.TemplateProcessing(OWN[own], special_tokens=special)
        raw.post_processor = processors.Sequence([processors.ByteLevel(), template])
    flags = {"add_bos_token": own == "end", "add_eos_token": own == "beginning"} if own != "both" else {}
    tokenizer = Tokenizer(raw, TokenizerExtra(made("bpe").roles, config=flags))
    run = Run(build(preset(kind, vocab_size=tokenizer.vocab_size, **SMALL)), tokenizer, task=task)
    if task == "read":  # a tokenizer's own template is what encoders are trained with
        tokenizer = Tokenizer(raw, TokenizerExtra(made("bpe").roles))
        run = Run(run.model, tokenizer, task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = run.save(tmp_path / "saved", to="hub")
        again = load(saved, "cpu").save(tmp_path / "again", to="hub")
    for folder in (saved, again):
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer.with_template(["the cat"])[0].ids if task == "read" and own != "none" else run.encode("the cat")
        assert theirs("the cat")["input_ids"] == ids, folder.name
        assert load(folder, "cpu").encode("the cat") == run.encode("the cat")
    assert (saved / "tokenizer.json").read_bytes() == (again / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("gpt2", 1),
        *(pytest.param(name, n, marks=pytest.mark.slow) for name in ("bert-base", "t5-small") for n in (1, 3)),
    ],
)
def test_a_width_by_which_families_divide_may_be_small(name: str, width: int, tmp_path: Path) -> None:
    sizes = {"d_model": width, "d_ff": 2, "n_layers": 1, "n_heads": 1, "vocab_size": 5}
    model = build(preset(name, **sizes), seed=0)
    again = load(save(model, tmp_path / "small"), "cpu").model
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
