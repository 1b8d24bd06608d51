"""Writes scalings_golden.json: the rates and magnitudes of the Hub's rotary scalings; needs transformers 5.

bench/.envs/huggingface/bin/python tests/nn/positions/make_scalings_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Ours, with the base, the number of turned coordinates, and the lengths of sequence to ask for.
CASES: list[tuple[dict[str, Any], float, int, list[int]]] = [
    ({"kind": "linear", "factor": 4.0}, 10000.0, 16, [10]),
    ({"kind": "linear", "factor": 2.5}, 5e5, 128, [10]),
    ({"kind": "dynamic", "factor": 2.0, "original_max_positions": 64}, 10000.0, 16, [5, 64, 65, 100, 1000]),
    ({"kind": "dynamic", "factor": 4.0, "original_max_positions": 2048}, 1e6, 64, [2048, 2049, 9000]),
    ({"kind": "yarn", "factor": 4.0, "original_max_positions": 2048}, 10000.0, 128, [10]),
    ({"kind": "yarn", "factor": 4.0, "original_max_positions": 32768, "truncate": False}, 1e6, 128, [10]),
    ({"kind": "yarn", "factor": 16.0, "original_max_positions": 64, "attention_factor": 1.3}, 10000.0, 16, [10]),
    ({"kind": "yarn", "factor": 8.0, "original_max_positions": 256, "beta_fast": 8.0, "beta_slow": 2.0}, 1e4, 32, [10]),
    (
        {"kind": "yarn", "factor": 40.0, "original_max_positions": 4096, "mscale": 1.0, "mscale_all_dim": 0.7},
        10000.0,
        64,
        [10],
    ),
    ({"kind": "yarn", "factor": 0.5, "original_max_positions": 4096}, 10000.0, 64, [10]),
    ({"kind": "llama3", "factor": 8.0, "original_max_positions": 8192}, 5e5, 128, [10]),
    (
        {
            "kind": "llama3",
            "factor": 32.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 3.0,
            "original_max_positions": 64,
        },
        10000.0,
        32,
        [10],
    ),
    (
        {
            "kind": "longrope",
            "short_factor": [1.0, 1.05, 1.1, 1.2, 1.4, 1.8, 2.0, 2.5],
            "long_factor": [1.0, 1.5, 2.5, 5.0, 9.0, 14.0, 20.0, 31.0],
            "original_max_positions": 64,
            "factor": 32.0,
        },
        10000.0,
        16,
        [10, 64, 65],
    ),
    (
        {
            "kind": "longrope",
            "short_factor": [1.0, 1.1],
            "long_factor": [2.0, 3.0],
            "original_max_positions": 64,
            "attention_factor": 1.2,
        },
        10000.0,
        4,
        [10, 100],
    ),
]
NAMES = {"original_max_positions": "original_max_position_embeddings"}


def theirs(scaling: dict[str, Any], base: float, width: int, length: int) -> tuple[torch.Tensor, float]:
    """Rates and magnitude, where the Hub's configuration has to say what is a default here."""
    defaults = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if scaling["kind"] == "llama3" else {}
    given = {NAMES.get(name, name): value for name, value in {**defaults, **scaling}.items() if name != "kind"}
    config = LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        max_position_embeddings=scaling.get("original_max_positions", 64),
        rope_parameters={"rope_type": scaling["kind"], "rope_theta": base, "factor": 1.0, **given},
    )
    return ROPE_INIT_FUNCTIONS[scaling["kind"]](config, seq_len=length)


def main() -> None:
    cases = []
    for scaling, base, width, lengths in CASES:
        for length in lengths:
            rates, magnitude = theirs(scaling, base, width, length)
            cases.append(
                {
                    "scaling": scaling,
                    "base": base,
                    "width": width,
                    "length": length,
                    "rates": rates.double().tolist(),
                    "magnitude": magnitude,
                }
            )
    golden = {"transformers": transformers.__version__, "cases": cases}
    Path(__file__).with_name("scalings_golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
