"""Writes the version of transformers to which each family of the Hub was last held: `python tests/helpers/held_families.py`.

A family counts if the outputs of all its cases are those of transformers, and its directories go there and back; families of
pictures and of sound, if their own test files pass. It takes some minutes.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HELD = ROOT / "src" / "qkv" / "io" / "families" / "held.py"
TESTS = ROOT / "tests" / "io" / "families"
OTHERS = {
    "test_vision.py": ("vit", "deit", "vit_mae", "yolos"),
    "test_whisper.py": ("whisper",),
    "test_wav2vec2.py": ("wav2vec2", "hubert"),
    "test_idefics3.py": ("idefics3", "smolvlm"),
    "test_gemma_vision.py": ("paligemma", "gemma3"),
    "test_qwen_vl.py": ("qwen2_5_vl", "qwen2_vl"),
    "test_qwen3_vl.py": ("qwen3_vl", "qwen3_vl_moe"),
    "test_two_towers.py": (
        *("clip", "clip_text_model", "clip_vision_model"),
        *("siglip", "siglip_text_model", "siglip_vision_model"),
        *("siglip2", "siglip2_text_model", "siglip2_vision_model"),
    ),
}
HEADER = '''"""The version of transformers to which each family was last held.

`python tests/helpers/held_families.py` writes this file.
"""

from __future__ import annotations

'''


def held() -> Iterator[str]:
    """The model types that pass."""
    import test_parity
    from hub_cases import CASES
    from hub_models import pair

    results: dict[str, list[bool]] = defaultdict(list)
    for name in CASES:
        model_type = pair(name).run.origin.config["model_type"]
        try:
            test_parity.test_outputs_match_transformers(name)
            test_parity.test_there_and_back(name)
        except (AssertionError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            results[model_type].append(False)
        else:
            results[model_type].append(True)
    yield from (model_type for model_type, passed in results.items() if all(passed))
    for file, model_types in OTHERS.items():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", str(TESTS / file)]
        if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0:
            yield from model_types


def main() -> None:
    sys.path[:0] = [str(TESTS), str(ROOT / "tests" / "helpers")]
    import transformers

    lines = "".join(f'    "{model_type}": "{transformers.__version__}",\n' for model_type in sorted(held()))
    HELD.write_text(f"{HEADER}HELD: dict[str, str] = {{\n{lines}}}\n", encoding="utf-8")
    print(f"{lines.count(chr(10))} families, written to {HELD.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
