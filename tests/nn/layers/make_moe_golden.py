"""Writes moe_golden.json: outputs, gradients and balance losses of the Hub's mixtures of experts; needs transformers 5.

bench/.envs/huggingface/bin/python tests/nn/layers/make_moe_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import DeepseekV3Config, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

WIDTH, TOKENS = 6, 11


def wave(*shape: int, seed: int) -> Tensor:
    """The same numbers wherever they are made."""
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=torch.float64) ** 2 * 0.37 + seed * 1.7 + 0.3).view(shape)


def blocks() -> dict[str, nn.Module]:
    mixtral = {"hidden_size": WIDTH, "intermediate_size": 5, "num_local_experts": 4}
    qwen2 = {"hidden_size": WIDTH, "moe_intermediate_size": 5, "shared_expert_intermediate_size": 7, "num_experts": 4}
    qwen3 = {"hidden_size": WIDTH, "moe_intermediate_size": 3, "num_experts": 16, "num_experts_per_tok": 8}
    deepseek = {"hidden_size": WIDTH, "moe_intermediate_size": 5, "n_routed_experts": 8, "num_experts_per_tok": 3}
    groups = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "routed_scaling_factor": 2.5}
    return {
        "mixtral": MixtralSparseMoeBlock(MixtralConfig(**mixtral, num_experts_per_tok=2)),
        "mixtral top 1": MixtralSparseMoeBlock(MixtralConfig(**mixtral, num_experts_per_tok=1)),
        "qwen2-moe": Qwen2MoeSparseMoeBlock(Qwen2MoeConfig(**qwen2, num_experts_per_tok=2, norm_topk_prob=False)),
        "qwen3-moe": Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**qwen3, norm_topk_prob=True)),
        "deepseek-v3": DeepseekV3MoE(DeepseekV3Config(**deepseek, **groups)),
    }


def result(block: nn.Module) -> dict[str, Any]:
    """Output and gradients; every parameter and buffer is a wave seeded by its number."""
    block.double().eval()
    with torch.no_grad():
        for i, (_, value) in enumerate(block.state_dict().items()):
            value.copy_(wave(*value.shape, seed=i))
    x = wave(1, TOKENS, WIDTH, seed=50).requires_grad_()
    out = block(x)
    (out * wave(*out.shape, seed=51)).sum().backward()
    return {
        "parameters": {name: list(value.shape) for name, value in block.state_dict().items()},
        "out": out.flatten().tolist(),
        "d_x": x.grad.flatten().tolist(),
        "gradients": {name: p.grad.flatten().tolist() for name, p in block.named_parameters()},
    }


def balances() -> list[dict[str, Any]]:
    logits = tuple(2 * wave(TOKENS, 4, seed=60 + i) for i in range(3))
    mask = torch.arange(TOKENS)[None] < 7
    return [
        {"top_k": k, "masked": m, "loss": float(load_balancing_loss_func(logits, 4, k, mask if m else None))}
        for k in (1, 2)
        for m in (False, True)
    ]


if __name__ == "__main__":
    golden = {
        "transformers": transformers.__version__,
        "blocks": {name: result(block) for name, block in blocks().items()},
        "balance": balances(),
    }
    text = json.dumps(json.loads(json.dumps(golden), parse_float=lambda v: round(float(v), 9)))
    Path(__file__).with_name("moe_golden.json").write_text(text + "\n")
