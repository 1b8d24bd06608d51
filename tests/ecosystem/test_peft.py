"""PEFT's adapters on qkv's models: they find the linear layers, train, merge, save and load, and every path sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fused_models import varied_model
from torch import Tensor, nn

pytestmark = pytest.mark.slow  # importing PEFT takes seconds

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64, "vocab_size": 40, "max_positions": 64}
IDS = torch.arange(12).view(2, 6)


def configurations() -> dict[str, Any]:
    import peft

    qv = ["q", "v"]
    return {
        "lora": peft.LoraConfig(target_modules=qv, r=4, init_lora_weights=False),
        "rslora": peft.LoraConfig(target_modules=qv, r=4, use_rslora=True, init_lora_weights=False),
        "dora": peft.LoraConfig(target_modules=["q", "up"], r=4, use_dora=True, init_lora_weights=False),
        "all-linear": peft.LoraConfig(target_modules="all-linear", r=4, init_lora_weights=False),
        "ia3": peft.IA3Config(target_modules=["k", "v", "down"], feedforward_modules=["down"], init_ia3_weights=False),
        "vera": peft.VeraConfig(target_modules=qv, r=4, init_weights=False),
        "loha": peft.LoHaConfig(target_modules=qv, r=4, init_weights=False),
        "lokr": peft.LoKrConfig(target_modules=qv, r=4, init_weights=False),
    }


def logits(model: nn.Module) -> Tensor:
    out: Tensor = model(IDS)
    return out


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["lora", "rslora", "dora", "all-linear", "ia3", "vera", "loha", "lokr"])
def test_adapters_train_merge_and_load(kind: str, preset: str, tmp_path: Path) -> None:
    import peft

    plain = varied_model(preset, SIZES, {})
    before = logits(plain).detach()
    adapted = peft.get_peft_model(plain, configurations()[kind])
    loss = logits(adapted).logsumexp(-1).mean()
    loss.backward()
    trained = [name for name, p in adapted.named_parameters() if p.grad is not None and bool(p.grad.any())]
    assert trained and all(p.requires_grad for p in adapted.parameters() if p.grad is not None)
    adapted.eval()
    with torch.no_grad():
        changed = logits(adapted)
        assert not torch.allclose(changed, before, atol=1e-3)
        # Decoding with a cache, which otherwise runs the fused kernels, computes with the adapter too.
        model = adapted.get_base_model()
        cache = model.start(2)
        steps = [model.step(IDS[:, i : i + 1], cache) for i in range(IDS.shape[1])]
        torch.testing.assert_close(torch.stack([step.view(2, -1) for step in steps], 1), changed, atol=1e-4, rtol=1e-4)
        adapted.save_pretrained(tmp_path)
        loaded = peft.PeftModel.from_pretrained(varied_model(preset, SIZES, {}), tmp_path).eval()
        torch.testing.assert_close(logits(loaded), changed, atol=1e-5, rtol=1e-5)
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(logits(merged), changed, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_layers_whose_matrix_is_read_in_parts_compute_with_the_adapter(kind: str) -> None:
    import peft

    import qkv

    spec = qkv.preset("llama", **SIZES)
    latent = qkv.LatentAttention(n_heads=2, d_latent=16, d_head=16, d_rotary=8)
    model = qkv.build(spec.replace({"decoder.blocks.*.attention": latent}), seed=0).eval()
    options = {"use_dora": True} if kind == "dora" else {}
    config = peft.LoraConfig(target_modules=["k_up", "v_up"], r=4, init_lora_weights=False, **options)
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        whole, cache = logits(adapted), adapted.get_base_model().start(2)
        base = adapted.get_base_model()
        steps = torch.stack([base.step(IDS[:, i : i + 1], cache).view(2, -1) for i in range(IDS.shape[1])], 1)
    torch.testing.assert_close(steps, whole, atol=1e-4, rtol=1e-4)
