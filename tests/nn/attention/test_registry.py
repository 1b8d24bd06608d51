"""Every mechanism is known by its kind wherever models are, whatever has been imported before."""

from __future__ import annotations

import subprocess
import sys

KINDS = {
    *("none", "attention", "block-sparse", "global-attention", "latent-attention", "linear-attention", "linformer"),
    *("lsh-attention", "performer", "convolution", "bytenet"),
}


def test_models_know_every_mechanism() -> None:
    code = "import qkv.nn.models.build; from qkv.nn.attention.multi_head import Mixer; print(*Mixer.kinds)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(printed.split()) >= KINDS
