"""What docs/finetuning.md shows, runs: another library's directory, changed, trained, and saved as that library reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import qkv

PAGE = Path(__file__).parents[2] / "docs" / "finetuning.md"
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
    assert qkv.load(place / "tuned", "cpu").text_model.tokenizer.chat.row(conversation)[0] == ids
