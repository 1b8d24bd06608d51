"""What docs/finetuning.md shows, runs: another library's directory, changed, trained, and saved as that library reads it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from run_tiny import LANGUAGE_MODEL, write_chats, write_text
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import qkv
from qkv.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "finetuning.md"
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHATS = [(f"What is {n}?", f"It is a number, and {n + 1} comes next.") for n in range(12)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `llama`, a tiny model as `transformers` saves one, and `chats.jsonl`."""
    transformers = pytest.importorskip("transformers", reason="the example needs another library's directory")
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([text for chat in CHATS for text in chat], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, chat_template=TEMPLATE, pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.save_pretrained(tmp_path / "llama")
    config = transformers.LlamaConfig(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    chats = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in CHATS]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_what_transformers_loads(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="the example is loaded by Hugging Face's transformers")
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(block.strip().splitlines()) <= 12
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    run, base = names["run"], qkv.load(place / "llama", "cpu")
    assert run.model.spec.decoder.blocks[0].attention.n_kv_heads == 1
    q = "decoder.blocks.0.attention.q.weight"
    assert not torch.equal(run.model.state_dict()[q].cpu(), base.model.state_dict()[q])
    theirs, loading = transformers.AutoModelForCausalLM.from_pretrained(place / "tuned", output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    conversation = [{"role": "user", "content": CHATS[0][0]}, {"role": "assistant", "content": CHATS[0][1]}]
    ids, _ = run.tokenizer.chat.row(conversation)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place / "tuned")
    assert tokenizer.apply_chat_template(conversation, return_dict=False) == ids
    with torch.no_grad():
        ours, expected = run.model(torch.tensor([ids])), theirs(torch.tensor([ids])).logits
    torch.testing.assert_close(ours.cpu(), expected, atol=1e-5, rtol=1e-4)
    assert qkv.load(place / "tuned", "cpu").tokenizer.chat.row(conversation)[0] == ids


@pytest.mark.slow
def test_an_adapter_over_4_bits(place: Path) -> None:
    (line,) = re.findall(r"^qkv train chat .*weights: nf4.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    command = shlex.split(line.replace("gpt2", "llama"))[1:]
    short = ["training.max_steps=2", "evaluation.test_examples=2", "batching.tokens=256", "batching.context=64"]
    assert main([*command, *short, "--out", "tuned"]) == 0
    assert main(["cost", *command[1:], *short]) == 0
    rounded, run = qkv.load("llama", "cpu", weights="nf4"), qkv.load("tuned", "cpu")
    again = qkv.load_adapter(rounded.model, "tuned/adapter")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids), run.model(ids), atol=1e-5, rtol=1e-4)


def test_a_language_model_of_ones_own_becomes_an_assistant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page shows it, on tiny models; the tokenizer even lacks the token that the template begins turns with."""
    (block,) = re.findall(r"```text\n(qkv train lm data.path=book.txt\n.*?)```", PAGE.read_text(), re.S)
    lm, tuned, talk = (shlex.split(line)[1:] for line in block.splitlines())
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path).rename("book.txt")
    write_chats(tmp_path)
    short = ["training.max_steps=2", "evaluation.test_examples=4", "batching.tokens=512"]
    assert main([*lm, *LANGUAGE_MODEL, "data.documents=line", "model.max_positions=200"]) == 0
    capsys.readouterr()
    assert main([*tuned, *short]) == 0
    printed = capsys.readouterr()
    said = " ".join((printed.out + printed.err).split())
    assert "batching.context is 200, the full context of runs/lm" in said
    assert "The tokenizer of runs/lm has no chat template; it gets the recipe's" in said
    assert main([*talk, "--max-new-tokens", "2"]) == 0
    run = qkv.load("runs/chat", device="cpu")
    assert run.tokenizer is not None and run.tokenizer.bos_id is not None
    prompt = run.tokenizer.chat.prompt([{"role": "user", "content": "1?"}])
    assert prompt[0] == run.tokenizer.bos_id and run.model.vocab_size == run.tokenizer.vocab_size
    assert main([*tuned, *short, "training.max_steps=3", "--resume"]) == 0  # the same command means the same context


def test_a_context_that_is_given_is_refused_with_the_one_that_fits(
    trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"model={trained_lm}", f"data.path={write_chats(tmp_path)}", "batching.context=300"]
    assert main(["train", "chat", *given, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "lower it (batching.context=256)" in said and "max_positions" not in said
