"""Where the Hub's implementation does not do what its configuration says, ours does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import MPT, transformers

from qkv.runs.inference.run import load


@torch.no_grad()
def test_mpt_falls_as_steeply_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' MptModel makes its ALiBi without handing `alibi_bias_max` on; handed on, it is ours."""
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    torch.manual_seed(5)
    config = transformers.MptConfig(**MPT, attn_config={"alibi_bias_max": 16})
    theirs = transformers.MptForCausalLM._from_config(config, attn_implementation="eager").eval()
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path, device="cpu").model
    told = lambda n_heads, length, device=None: build_mpt_alibi_tensor(n_heads, length, 16, device)  # noqa: E731
    monkeypatch.setattr(theirs.transformer, "build_mpt_alibi_tensor", told)
    ids = torch.arange(6, 30)[None]
    torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
