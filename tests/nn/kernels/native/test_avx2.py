"""Kernels compiled for AVX2 pass the tests of products, decoding and quantized caches, also on a processor with AVX-512."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.nn.kernels.native import prebuilt

ROOT = Path(__file__).parents[4]
V3 = prebuilt.TARGETS["decoding"][-1]
TESTS = (
    "nn/kernels/cpu/test_block_sparse.py",
    "nn/kernels/native/test_decoding.py",
    "nn/kernels/native/test_quantized_kv.py",
    "nn/kernels/products/test_integers.py",
    "nn/kernels/products/test_several.py",
    "nn/models/fused_step/test_groups.py",
    "nn/models/fused_step/test_step.py",
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.skipif(not V3.needs <= prebuilt.processor_flags(), reason="this processor has no AVX2")
def test_kernels_compiled_for_avx2_pass_their_tests(tmp_path: Path) -> None:
    """Stacks over whole sequences need AVX-512 and are left out."""
    compiler = tmp_path / "g++-avx2"
    compiler.write_text(f'#!/bin/bash\nexec g++ "${{@/-march=native/{V3.flags[0]}}}"\n')
    compiler.chmod(0o700)
    chosen = {"CXX": str(compiler), "QKV_CACHE": str(tmp_path), "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in TESTS)],
        cwd=ROOT,
        env={**os.environ, **chosen},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    built = {path.name.partition("-")[0] for path in (tmp_path / "kernels").glob("*.so")}
    assert {"block_sparse", "decoding", "products", "quantized_kv"} <= built
