"""Kernels compiled for processors that this one is not, and products in an emulator of Arm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from qkv.nn.kernels.native import prebuilt

HERE = Path(__file__).parent
SOURCES = Path(prebuilt.__file__).parent
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
DOT_PRODUCTS = "-march=armv8.2-a+dotprod+fp16"

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"there is no {COMPILER}")


def compiled(*words: str) -> None:
    done = subprocess.run([COMPILER, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("source", sorted(path.stem for path in SOURCES.glob("*.cpp")))
def test_arm_compiles(source: str, tmp_path: Path) -> None:
    """With the flags of a machine with Arm, but without optimization, which takes long."""
    flags = [flag for flag in prebuilt.flags_for("aarch64") if flag != "-O3"]
    compiled(*flags, DOT_PRODUCTS, "-Wno-psabi", str(SOURCES / f"{source}.cpp"), "-o", str(tmp_path / "kernels.o"))


@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"there is no {EMULATOR}")
@pytest.mark.parametrize(
    "march, said", [(DOT_PRODUCTS, "by Arm's dot products, 0 wrong"), ("-march=armv8-a", "by plain loops, 0 wrong")]
)
def test_products_on_arm(march: str, said: str, tmp_path: Path) -> None:
    """fp32, bf16, 8 and 4 bits, with activations in fp32, bf16 and 8 bits, against sums in double."""
    flags = [flag for flag in prebuilt.flags_for("aarch64") if flag != "-c"]
    words = (*flags, march, "-static", "-Wno-psabi", f"-I{SOURCES}", str(HERE / "products_cases.cpp"))
    compiled(*words, "-o", str(tmp_path / "products"))
    done = subprocess.run([EMULATOR, str(tmp_path / "products")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and said in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
