"""The page about other libraries: its lines run, are as few as with transformers, and what it says was tried is tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from auto_models import bert, config, llama, words
from own_tasks import own_tasks

import qkv

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ecosystem.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PAIRS = re.findall(
    r'### ([^\n]+)\n\n```python title="qkv"\n(.*?)```\n\n```python title="transformers"\n(.*?)```', PAGE, re.DOTALL
)
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", PAGE, re.M)][2:]
PINS = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
PINNED = {name.lower(): version for name, version in PINS}
DISTRIBUTIONS = {"PyTorch": "torch", "PyTorch, 2 ranks": "torch", "accelerate, 2 processes (gloo)": "accelerate"}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_lines_of_the_page_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], "docs/ecosystem.md", "exec"), {})


def lines(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


def test_a_model_of_qkv_needs_one_line_more_at_most() -> None:
    assert len(PAIRS) == 5
    for title, ours, theirs in PAIRS:
        assert lines(ours) <= lines(theirs) + 1, title
        assert all(len(line) <= 125 for line in (ours + theirs).splitlines()), title


def made_models(title: str) -> None:
    """A directory of qkv and one of transformers: encoders for mteb, decoders for everything else."""
    import transformers

    tokenizer, sizes = words(), {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 48}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 64}
    if title == "mteb":
        spec = bert().replace({"encoder.position": qkv.ALiBi(), "head": None})
        models = [transformers.AutoModel.from_config(config(spec))]
        models.append(transformers.BertModel(transformers.BertConfig(**sizes)))
    else:
        models = [transformers.AutoModelForCausalLM.from_config(config(llama(decoder__position=qkv.ALiBi())))]
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        models.append(transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **special)))
    for name, model in zip(("ours", "theirs"), models, strict=True):
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("side", [1, 2], ids=["qkv", "transformers"])
@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[title for title, _, _ in PAIRS])
def test_the_lines_of_both_run(number: int, side: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    title, code = PAIRS[number][0], PAIRS[number][side]
    for library in re.findall(r"^(?:import|from) (peft|trl|lm_eval|mteb|sentence_transformers)", code, re.M):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    made_models(title)
    own_tasks(tmp_path / "tasks")
    if title == "mteb":
        import mteb
        from made_mteb import MadeSTS

        words_of = [" ".join(f"w{i + j}" for j in range(3)) for i in range(7)]
        monkeypatch.setattr(MadeSTS, "rows", tuple((words_of[0], text, float(i)) for i, text in enumerate(words_of)))
        monkeypatch.setattr(mteb, "get_tasks", lambda tasks: [MadeSTS()])
    space: dict[str, Any] = {}
    exec(compile(code, "docs/ecosystem.md", "exec"), space)
    if title == "lm-evaluation-harness":
        assert 0 <= space["results"]["results"]["own_choices"]["acc,none"] <= 1
    elif title == "mteb":
        assert -1 <= space["results"].task_results[0].get_score() <= 1
    elif title == "LoRA":
        assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    else:
        assert title == "DPO" or sum(parameter.numel() for parameter in space["model"].parameters()) > 1000


def test_what_was_tried_names_tests_and_versions_that_hold() -> None:
    assert len(ROWS) > 20
    for tool, version, _, bound, files in ROWS:
        for file in re.findall(r"`(tests/[^`]+)`", files):
            assert (ROOT / file).is_file(), file
        if not version:
            assert bound.startswith(("not tried", "refused")), tool
            continue
        assert "`tests/" in files, tool
        pinned = PINNED.get(DISTRIBUTIONS.get(tool, tool).lower())
        assert version == (pinned or f"{version.rstrip('†')}†"), tool
