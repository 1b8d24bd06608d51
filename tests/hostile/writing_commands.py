"""The commands that replace what is on disk, and Python's functions beside them, for `replacements.py`.

Each program writes something old, then something new over it, in the process that calls it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "helpers"))

import whispering  # noqa: E402
from run_tiny import TINY, translator  # noqa: E402
from run_untrained import of, words  # noqa: E402
from small_comparison import SMALL  # noqa: E402
from small_study import written_study  # noqa: E402

from qkv.cli import main  # noqa: E402
from qkv.data.media.audio import encode  # noqa: E402
from qkv.data.tokenizers.tokenizer import Tokenizer  # noqa: E402
from qkv.data.tokenizers.tokenizer import train as train_tokenizer  # noqa: E402
from qkv.data.tokenizers.training.spec import TokenizerSpec  # noqa: E402

CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
STUDY_FILES = r".*\.(html|json|jsonl|yaml|csv|tex|md|db)|optimizer.*"
"""Files of studies and runs that contain times."""


@dataclass(frozen=True)
class Program:
    """`old` writes what `new` replaces at a path. `varying` files are not the same each time. `long`: the old one is kept
    aside until the new one is finished. `apart`: the files of a folder are replaced one by one. `every`: of how many
    operations one is tried, because there are many."""

    old: Callable[[Path], object]
    new: Callable[[Path], object]
    name: str = "out"
    varying: str = "$."
    long: bool = False
    apart: bool = False
    every: int = 1


def command(*arguments: object) -> None:
    """Run a command. Raises OSError with what it printed on standard error if its status is not 0."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main([str(argument) for argument in arguments])
    if status:
        raise OSError(f"status {status}: {said.getvalue()}")


def pieces(text: str, template: str | None) -> Tokenizer:
    """A tokenizer that GGUF files can hold."""
    spec = {"kind": "bpe", "vocab_size": 300, "bos": "<s>", "eos": "</s>", "pad": "<pad>", "chat_template": template}
    return train_tokenizer(TokenizerSpec.from_dict(spec), iter([text]))


@functools.cache
def sources(home: Path) -> Path:
    """A folder of models and data: `one` and `other`, `lora` (a run with an adapter), texts and a study."""
    from qkv.nn.layers.lora import LoRA, adapt
    from qkv.runs.recipes.recipe import Recipe
    from qkv.runs.train.train import train

    home.mkdir(parents=True, exist_ok=True)
    of("gpt2", pieces("the cat sat", CHAT), "continue").save(home / "one", "hub")
    of("gpt2", pieces("a dog lay", None), "continue", n_layers=2).save(home / "other", "hub")
    adapted = adapt(of("gpt2", words(), "continue").model, LoRA(rank=2))
    adapted.save(home / "adapted", "qkv")
    base = translator(home)
    data = [setting for setting in TINY if not setting.startswith("model.")]
    lora = [*data, f"model={base}", "adapter={kind: lora, rank: 2, alpha: 4}"]
    train(Recipe.load("reverse", lora), home / "lora", device="cpu")
    written_study(home, budgets=[5e7, 8e7], sizes=["8x1", "12x1", "16x1", "24x1"])
    (home / "a.txt").write_text("the cat sat on the mat\n" * 50)
    (home / "b.txt").write_text("a dog lay on a rug, and slept\n" * 50)
    (home / "in.csv").write_text("text\nabc\nbca\n")
    (home / "other.csv").write_text("text\ncab\n")
    texts = {"path": str(home / "train.txt"), "validation_path": str(home / "validation.txt")}
    (home / "schemes.yaml").write_text(yaml.safe_dump({**SMALL, "data": {"kind": "text", **texts}}))
    _sounds(home)
    return home


def _sounds(home: Path) -> None:
    whispering.save(home / "whisper")
    (home / "sounds").mkdir()
    for n in range(2):
        (home / "sounds" / f"{n}.wav").write_bytes(encode(whispering.noise(0.3, n), 16_000))


def _convert(home: Path, to: str, *options: str, first: str = "one", second: str = "other", **program: Any) -> Program:
    def written(source: str, *more: str) -> Callable[[Path], None]:
        return lambda path: command("convert", sources(home) / source, path, "--to", to, *options, *more)

    return Program(written(first), written(second, "--overwrite"), **program)


def conversions(home: Path) -> dict[str, Program]:
    return {
        "convert-hub": _convert(home, "hub"),
        "convert-shards": _convert(home, "hub", "--max-shard-size", "5KB"),
        "convert-qkv": _convert(home, "qkv"),
        "convert-safetensors": _convert(home, "safetensors", name="model.safetensors"),
        "convert-gguf": _convert(home, "gguf", name="model.gguf"),
        "convert-onnx": _convert(home, "onnx", varying=r".*\.onnx"),
        "convert-int8-onnx": _convert(home, "onnx", "--int8", varying=r".*\.onnx"),
        "convert-torch-export": _convert(home, "torch-export", "--no-aot", varying=r".*\.pt2"),
        "convert-lora": _convert(home, "qkv", first="reverse", second="lora"),
        "convert-merged": _convert(home, "qkv", first="one", second="adapted"),
    }


def saves(home: Path) -> dict[str, Program]:
    """What Python saves."""
    import qkv
    from qkv.io.directories.adapters import save_merged
    from qkv.nn.layers.lora import LoRA, adapt

    one, other = of("gpt2", words(CHAT), "continue"), of("gpt2", words(), "continue", n_layers=2)
    adapted = [adapt(of("gpt2", None, "continue", n_layers=n).model, LoRA(rank=2)) for n in (1, 2)]

    def lora(path: Path, **options: Any) -> None:
        qkv.load(sources(home) / "lora", device="cpu").save(path, **options)

    return {
        "save-model": Program(lambda path: one.model.save(path), lambda path: other.model.save(path, overwrite=True)),
        "save-folded": Program(
            lambda path: one.model.save(path), lambda path: qkv.fold(adapted[0]).save(path, overwrite=True)
        ),
        "save-merged": Program(
            lambda path: save_merged(adapted[0], path),
            lambda path: save_merged(adapted[1], path),
            "merged.safetensors",
        ),
        "save-lora": Program(
            lambda path: qkv.load(sources(home) / "reverse", device="cpu").save(path),
            lambda path: lora(path, overwrite=True),
        ),
    }


def tools(home: Path) -> dict[str, Program]:
    """Commands that write files of results."""

    def train(text: str, *options: object) -> Callable[[Path], None]:
        return lambda path: command(
            "tokenizer", "train", sources(home) / text, "--vocab-size", 300, "--out", path, *options
        )

    def of_one(name: str, source: str, *options: object, suffix: str) -> Program:
        def write(file: str, *more: object) -> Callable[[Path], None]:
            return lambda path: command(
                name, sources(home) / source, sources(home) / file, *options, "--out", path, *more
            )

        return Program(write("in.csv"), write("a.txt", "--overwrite"), f"out{suffix}")

    return {
        "tokenizer-train": Program(train("a.txt"), train("b.txt", "--overwrite")),
        "tokenizer-convert": Program(
            lambda path: command("tokenizer", "convert", sources(home) / "one", path),
            lambda path: command("tokenizer", "convert", sources(home) / "other", path, "--overwrite"),
        ),
        "score": of_one("score", "one", suffix=".csv"),
        "embed": of_one("embed", "one", suffix=".npy"),
        "vectors": Program(
            lambda path: command("vectors", "train", sources(home) / "a.txt", "--width", 8, "--out", path),
            lambda path: command(
                "vectors", "train", sources(home) / "b.txt", "--width", 8, "--out", path, "--overwrite"
            ),
            "vectors.txt",
        ),
    }


def results(home: Path) -> dict[str, Program]:
    """Commands that write what a run answers, and pictures."""
    here = functools.partial(sources, home)

    def program(file: str, first: tuple[object, ...], second: tuple[object, ...], **how: Any) -> Program:
        return Program(
            lambda path: command(*first, "--out", path), lambda path: command(*second, "--out", path), file, **how
        )

    def predicted(file: str) -> Program:
        return Program(
            lambda path: command("translate", here() / "reverse", here() / "in.csv", "--out", path, "--device", "cpu"),
            lambda path: command(
                "translate", here() / "reverse", here() / "other.csv", "--out", path, "--device", "cpu", "--overwrite"
            ),
            file,
        )

    def looked(file: str) -> Program:
        return Program(
            lambda path: command("look", here() / "one", "the cat", "--out", path, "--device", "cpu"),
            lambda path: command(
                "look", here() / "one", "the cat sat", "--out", path, "--overwrite", "--device", "cpu"
            ),
            file,
        )

    evaluated = ("eval", home / "reverse", "--device", "cpu")
    swept = ("cost", "gpt2", "--sweep")
    simulated = ("cost", "gpt2", "--simulate", "--hardware", "h100", "--length", 64, "--gpus")
    heard = ("transcribe", home / "whisper", home / "sounds", "--json", "--device", "cpu", "--language")

    return {
        **{f"predict-{kind}": predicted(f"out.{kind}") for kind in ("csv", "jsonl", "parquet")},
        **{f"look-{kind}": looked(f"out.{kind}") for kind in ("svg", "html", "json")},
        "eval": program("out.jsonl", (*evaluated, "--data", "validation"), (*evaluated, "--overwrite")),
        "explain": program("out.html", ("explain", "attention"), ("explain", "backprop", "--overwrite")),
        "report": program(
            "out.html",
            ("report", home / "reverse", home / "lora"),
            ("report", home / "lora", home / "reverse", "--overwrite"),
        ),
        "cost-sweep": program("out.svg", (*swept, "tokens=128..256"), (*swept, "tokens=128..512", "--overwrite")),
        "cost-simulate": program("out.html", (*simulated, "8..8"), (*simulated, "8..16", "--overwrite")),
        "transcribe": program("out", (*heard, "en"), (*heard, "de", "--overwrite"), apart=True),
    }


def folders(home: Path) -> dict[str, Program]:
    """Commands that write what is always the same: the old one is what an earlier version wrote. And a cache of Python's."""
    from kv_caches import feed, started

    from qkv.nn.kv_cache.kinds import FullCache

    def earlier(*words: str, end: str) -> Program:
        def old(path: Path) -> None:
            command(*words, path)
            for file in path.iterdir():
                file.write_bytes(file.read_bytes() + end.encode())

        return Program(old, lambda path: command(*words, path), apart=True, every=5)

    def pictures(path: Path) -> None:
        command("list", "positions", "--overwrite", "--out", path)

    def cached(tokens: int) -> Callable[[Path], None]:
        cache = started(FullCache(), about=lambda: {"layers": []})
        feed(cache, tokens)
        return cache.save

    drawn = earlier("list", "positions", "--out", end="<!-- of before -->")
    return {
        "tour": earlier("tour", "--html", end="<!-- of before -->"),
        "list": Program(drawn.old, pictures, apart=True, every=5),
        "cache": Program(cached(3), cached(5), "cache.safetensors"),
    }


def lab(home: Path) -> dict[str, Program]:
    """Commands of the lab. `study.yaml` is a language model that trains in a moment."""

    def study(name: str, *options: object) -> Callable[[Path], None]:
        return lambda path: command(
            name, sources(home) / "study.yaml", *options, "--out", path, "--device", "cpu", "--jobs", 1
        )

    def program(name: str, first: tuple[object, ...], second: tuple[object, ...]) -> Program:
        return Program(
            study(name, *first), study(name, *second, "--overwrite"), varying=STUDY_FILES, long=True, every=12
        )

    def shrunk(name: str, *options: object) -> Callable[[Path], None]:
        return lambda path: command(name, sources(home) / "reverse", *options, "--out", path, "--device", "cpu")

    def compared(*options: object) -> Callable[[Path], None]:
        return lambda path: command("train", sources(home) / "schemes.yaml", *options, "--out", path, "--device", "cpu")

    rates = ("--space", "training.optimizer.lr=1e-4..1e-2", "--trials")
    return {
        "command-quantize": Program(
            shrunk("quantize", "--weights", "int8"),
            shrunk("quantize", "--weights", "int4", "--group-size", 16, "--overwrite"),
            varying=r"quantization\.html|.*\.json|recipe\.yaml",
        ),
        "command-prune": Program(
            shrunk("prune", "--heads", "50%", "--examples", 8),
            shrunk("prune", "--neurons", "25%", "--examples", 8, "--overwrite"),
            varying=r"pruning\.(html|json)|recipe\.yaml",
        ),
        "ablate": program("ablate", ("--drop", "scale", "--seeds", 1), ("--vary", "model.n_heads=1,2", "--seeds", 1)),
        "tune": program("tune", (*rates, 2), (*rates, 3)),
        "scaling": program("scaling", ("--sizes", "8x1,12x1,16x1,24x1"), ("--sizes", "8x1,12x1,16x1,20x1")),
        "compare": Program(
            compared("training.max_steps=2"),
            compared("training.max_steps=3", "--overwrite"),
            varying=STUDY_FILES,
            long=True,
            every=12,
        ),
    }
