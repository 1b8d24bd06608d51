"""Replies: by the chat template, whole or as they come, ended by the template's own token."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import run_tiny
import torch

from qkv.generation import generate
from qkv.nn.models.vocabulary import resize_vocabulary
from qkv.runs.inference import loaded
from qkv.runs.inference.chat import chat, replies, stream_reply
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview

ASKED = [{"role": "user", "content": "7 + 1?"}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(run_tiny.assistant(tmp_path_factory.mktemp("runs")), device="cpu")


def test_a_reply_continues_from_the_templates_prompt(run: Run) -> None:
    prompt = run.words.chat.prompt(ASKED)
    (output,) = replace(run, task="answer").outputs_of([prompt], run.settings(max_new_tokens=6))[0]
    reply = chat(run, ASKED, max_new_tokens=6)
    assert reply == output.text
    assert chat(run, [*ASKED, {"role": "assistant", "content": reply}, *ASKED], max_new_tokens=6)
    pieces: list[str] = []
    assert chat(run, ASKED, pieces.append, max_new_tokens=6) == "".join(pieces) == reply


def test_each_conversation_gets_what_it_gets_alone(run: Run) -> None:
    others = [[{"role": "user", "content": f"{n} + 1?" * n}] for n in (1, 3, 2)]
    found = replies(run, others, run.settings(max_new_tokens=5))
    assert [outputs[0].text for outputs in found] == [chat(run, messages, max_new_tokens=5) for messages in others]


def test_a_reply_ends_with_the_templates_end_of_a_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    end, used = run.words.eos_id, []

    def spy(*given: Any, eos_id: Any, **options: Any) -> Any:
        used.append(eos_id)
        return generate(*given, eos_id=eos_id, **options)

    monkeypatch.setattr(loaded, "generate", spy)
    monkeypatch.setattr(run.words, "eos_id", None)  # as of a base model, whose own end is another
    settings = run.settings(max_new_tokens=3)
    replies(run, [ASKED], settings)
    stream_reply(run, ASKED, settings, print)
    run.generate("a", max_new_tokens=3)
    assert used == [[end], [end], []]


def test_what_can_not_reply_says_so(trained: Path, trained_lm: Path) -> None:
    with pytest.raises(ValueError, match="is an encoder–decoder, and only a language model replies"):
        chat(load(trained, device="cpu"), ASKED)
    with pytest.raises(ValueError, match=r"lm: this tokenizer has no chat template"):
        chat(load(trained_lm, device="cpu"), ASKED)


def test_the_preview_shows_what_counts(tmp_path: Path) -> None:
    path = run_tiny.write_chats(tmp_path)
    recipe = Recipe.load("chat", [*run_tiny.CHAT, f"data.path={path}", "batching.packing=false"])
    row = preview(recipe).rows[0]
    question, answer = "".join(row.input), "".join(row.label)
    assert question.startswith("<s>user") and "<s>assistant" in question
    assert answer.endswith("</s>") and answer.removesuffix("</s>").isdigit()
    assert [i for i in row.label_ids if i != -100] == [
        after for i, after in zip(row.label_ids, row.input_ids[1:], strict=False) if i != -100
    ]


def test_lines_that_can_not_be_learned_from_are_named(tmp_path: Path) -> None:
    path = run_tiny.write_chats(tmp_path)
    path.write_text(path.read_text() + '{"messages": [{"role": "user", "content": "and?"}]}\n')
    held = [f"data.{split}_path={path}" for split in ("validation", "test")]
    with pytest.raises(ValueError, match=r"chats\.jsonl', line 61: the assistant says nothing"):
        preview(Recipe.load("chat", [*run_tiny.CHAT, f"data.path={path}", *held]))
    with pytest.raises(ValueError, match=r"^this tokenizer has no chat template"):
        preview(Recipe.load("chat", [*run_tiny.CHAT, f"data.path={path}", "tokenizer.chat_template=null"]))
    with pytest.raises(ValueError, match=r"source gives conversations; an encoder-decoder needs"):
        model = "model={preset: transformer, d_model: 16, n_layers: 1, n_heads: 2}"
        sizes = ("batching.max_length=32", "batching.packing=false")
        preview(
            Recipe.load(
                "chat",
                [
                    *(s for s in run_tiny.CHAT if not s.startswith("model.")),
                    model,
                    *sizes,
                    f"data.path={run_tiny.write_chats(tmp_path)}",
                ],
            )
        )


def test_a_model_says_only_what_its_tokenizer_has(run: Run) -> None:
    """The Hub's models often have a table with more rows than tokens."""
    larger = resize_vocabulary(run.model, run.model.vocab_size + 200)
    with torch.no_grad():
        larger.decoder.embedding.weight[-200:-100] *= 50  # tied: such tokens would win,
        larger.decoder.embedding.weight[-100:] *= -50  # those or these
    assert chat(Run(larger.eval(), run.tokenizer), ASKED, max_new_tokens=8) is not None


def test_a_run_of_conversations_is_sampled_and_saved_as_such(tmp_path: Path) -> None:
    out = run_tiny.assistant(tmp_path)
    run = load(out, device="cpu")
    asked = [{"role": "user", "content": "1 + 1?"}]
    assert run.chat(asked) == chat(run, asked)
    samples = json.loads((out / "samples.json").read_text())
    assert samples and all(s["source"].startswith("user: ") and s["target"].isdigit() for s in samples)
    saved = run.save(tmp_path / "hub", to="hub")
    written = {path.name for path in saved.iterdir()}
    assert {"tokenizer_config.json", "chat_template.jinja", "tokenizer.json"} <= written
