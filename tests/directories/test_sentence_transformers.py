"""Directories of sentence-transformers: pooling, normalization, lengths and prompts are theirs, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.directories import sentence_transformers as sentences
from qkv.directories.build import build
from qkv.families import preset
from qkv.inference.run import Run, load
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c", "d", "q:"]
TEXTS = ["a b c", "d", "c c a b d a"]
STEPS = ("Transformer", "Pooling", "Normalize")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT with a tokenizer, as sentence-transformers lays it out; no pooling yet."""
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "vocab_size": len(WORDS), "max_positions": 16}
    model = build(preset("bert-base", **sizes, head=False, labels=0), seed=4).eval()
    Run(model, None, task="read").save(tmp_path, to="hub")
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(WORDS[:4])
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    raw.save(str(tmp_path / "tokenizer.json"))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["qkv"]  # as it comes from elsewhere
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def laid_out(folder: Path, *, pooling: Any = "mean_tokens", steps: tuple[str, ...] = STEPS, **settings: Any) -> Path:
    names = ("", "1_Pooling", *(f"{i}_{step}" for i, step in enumerate(steps[2:], 2)))
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{step}"}
        for i, (step, path) in enumerate(zip(steps, names, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    given = {f"pooling_mode_{mode}": mode == pooling for mode in modes} if isinstance(pooling, str) else pooling
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **given}))
    for name, said in settings.items():
        (folder / f"{name}.json").write_text(json.dumps(said))
    return folder


@torch.no_grad()
def theirs(folder: Path, texts: list[str], pooling: str, longest: int | None = None) -> torch.Tensor:
    """What sentence-transformers computes, by transformers' own model and tokenizer: padded, masked, pooled, normalized."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    batch = tokenizer(texts, padding=True, truncation=longest is not None, max_length=longest, return_tensors="pt")
    batch.pop("token_type_ids", None)
    states = transformers.BertModel.from_pretrained(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    pooled = {
        "mean_tokens": (states * mask).sum(1) / mask.sum(1),
        "cls_token": states[:, 0],
        "max_tokens": states.masked_fill(mask == 0, -1e9).amax(1),
        "lasttoken": states[torch.arange(len(texts)), mask[..., 0].sum(1) - 1],
    }
    return torch.nn.functional.normalize(pooled[pooling], dim=-1)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "max_tokens", "lasttoken"])
def test_vectors_are_the_librarys(folder: Path, pooling: str) -> None:
    run = load(laid_out(folder, pooling=pooling), "cpu")
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), theirs(folder, TEXTS, pooling), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        run.embed(TEXTS, pooling="mean")[2], run.embed(TEXTS)[2], atol=1e-3
    )  # asked by name: as it is


def test_without_a_normalization_there_is_none(folder: Path) -> None:
    run = load(laid_out(folder, pooling={"pooling_mode": "cls"}, steps=STEPS[:2]), "cpu")
    assert torch.equal(run.embed(TEXTS)[0], run.embed(TEXTS, pooling="cls")[0])


def test_long_texts_are_cut_with_a_word(folder: Path) -> None:
    run = load(laid_out(folder, sentence_bert_config={"max_seq_length": 5, "do_lower_case": True}), "cpu")
    with pytest.warns(UserWarning, match=r"1 of 3 texts are longer than max_seq_length \(5\) and cut there"):
        made = run.embed(["A B c", "d", "c c a b d a"])
    torch.testing.assert_close(torch.stack(made), theirs(folder, TEXTS, "mean_tokens", 5), rtol=1e-4, atol=1e-5)


def test_a_prompt_stands_before_every_text(folder: Path) -> None:
    prompts = {"prompts": {"query": "q: ", "passage": ""}, "default_prompt_name": "query"}
    run = load(laid_out(folder, config_sentence_transformers=prompts), "cpu")
    wanted = theirs(folder, [f"q: {text}" for text in TEXTS], "mean_tokens")
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("to", ["hub", "qkv"])
def test_what_is_saved_makes_the_same_vectors(folder: Path, tmp_path: Path, to: Any) -> None:
    run = load(laid_out(folder, pooling="cls_token", sentence_bert_config={"max_seq_length": 12}), "cpu")
    again = load(run.save(tmp_path / "again", to=to), "cpu")
    assert sentences.read(tmp_path / "again") == sentences.read(folder) is not None
    torch.testing.assert_close(torch.stack(again.embed(TEXTS)), torch.stack(run.embed(TEXTS)))


@pytest.mark.parametrize(
    "layout, said",
    [
        ({"steps": ("Transformer", "Pooling", "Dense")}, "ends in 'Dense', which is not built here"),
        ({"steps": ("Transformer", "Pooling", "Dense", "Normalize")}, "'Transformer → Pooling → Dense → Normalize'"),
        ({"pooling": "mean_sqrt_len_tokens"}, "pools by 'mean_sqrt_len_tokens', which is not built here"),
        ({"pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}}, "pools by 'cls_token, max"),
        ({"sentence_bert_config": {"max_seq_length": "long"}}, "max_seq_length must be an integer"),
        ({"config_sentence_transformers": {"default_prompt_name": "x"}}, "prompts has no such text"),
        ({"modules": {"a": 1}}, "must be a list"),
        (
            {"modules": [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "../x"}]},
            "names the folder '../x'",
        ),
    ],
)
def test_what_is_not_known_is_refused_where_vectors_are_asked_for(
    folder: Path, layout: dict[str, Any], said: str
) -> None:
    run = load(laid_out(folder, **layout), "cpu")
    with pytest.raises(ValueError) as error:
        run.embed(TEXTS)
    assert said in str(error.value)
    assert len(run.embed(TEXTS, pooling="none")) == 3  # the advice works
