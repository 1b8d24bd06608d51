"""Save a model as one GGUF file, which llama.cpp runs: metadata, tensors in the chosen type, and the tokenizer."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...core import several
from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.build import build
from ...io.directories.hub_save import in_hub_form
from ...io.directories.origin import Origin
from ...io.directories.run_config import Use
from ...io.families import family_of
from ...io.hub.family import Family, difference
from ...io.hub.gguf.architectures import Architecture, of_model_type
from ...io.hub.gguf.block_types import BY_NAME, BlockType, written_type
from ...io.hub.gguf.blocks import quantize
from ...io.hub.gguf.codes import bytes_of, type_of
from ...io.hub.gguf.encoders import ENCODERS, TYPE_COUNT, bare_encoder, pooling_metadata
from ...io.hub.gguf.rope import factor_tensors, with_factors
from ...io.hub.gguf.tokenizers.write import tokenizer_metadata
from ...io.hub.gguf.writer import Written, write
from ...io.hub.names import Names, StoredPlace
from ...io.hub.quantized.stored import joined
from ...io.hub.transforms import SAME
from ...nn.layers.lora import of_merged
from ...nn.layers.quantized import QuantizedMatrix, quantized
from ...nn.models.heads.sequence import SentenceVector
from ...nn.models.transformer import Transformer, TransformerModel
from ...nn.quantization.formats import Packed

F32 = BY_NAME["f32"]
PLAIN_ROWS = ("ffn_gate_inp", "position_embd", "token_types", "attn_rel_b")
"""Matrices that llama.cpp reads in fp32 only, or that are too small to gain from less."""
AS_BERT = ("roberta", "xlm-roberta", "camembert")
"""Families whose encoders are BERT's without the rows before their first position."""
OUTPUT, EMBEDDING = "output.weight", "token_embd.weight"


@of_merged
def save(
    model: nn.Module,
    path: Path | str,
    kind: str | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    task: Use = "continue",
    origin: Origin | None = None,
    pooling: str | None = None,
    name: str = "",
    advance: Callable[[float], None] = lambda share: None,
) -> Path:
    """Write a model and its tokenizer. Nothing is written if llama.cpp can't represent a part of them.

    kind:    type of the matrices, such as "q8_0"; by default the model's dtype. Vectors stay in fp32, and so do matrices
             that llama.cpp wants so; the output of a model in 4 or 5 bits is q8_0. Matrices of a quantized model keep their
             codes, int8 as q8_0 and int4 as q4_0; only their scales are rounded, to fp16.
    pooling: how the states of an encoder become a vector ("mean", "first" or "cls", "last"), if no head says it.
    advance: called with the share that is written.

    Raises ValueError in one sentence that names the part and the nearest thing that works.
    """
    path = several.path(path)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise ValueError(f"a tokenizer is a qkv.Tokenizer, not {several.shown(tokenizer)}")
    if not isinstance(model, TransformerModel):
        raise ValueError("GGUF holds Transformers, and this model is none; save it in qkv's own format with --to qkv")
    chosen = written_type(kind or str(model.dtype).removeprefix("torch.").replace("float", "f"))
    head, model = model.spec.head, bare_encoder(in_hub_form(model, origin))
    config, architecture, family = _described(model.spec, origin)
    metadata = architecture.metadata(config)
    _warn_of_windows(model.spec, metadata)
    if architecture.name in ENCODERS:
        metadata |= pooling_metadata(head.pool if isinstance(head, SentenceVector) else pooling)
    metadata = {f"{architecture.name}.{key}": value for key, value in metadata.items()}
    around = ([], []) if tokenizer is None else _around(tokenizer, task, origin)
    words = tokenizer_metadata(tokenizer, model.spec.vocab_size, around, architecture.name)
    if architecture.name in ENCODERS:
        words[TYPE_COUNT] = config["type_vocab_size"]
    tensors = list(_tensors(model, architecture, chosen, factor_tensors(config)))
    _check_read_back(architecture, family, metadata, config, tensors)
    general = {
        "general.architecture": architecture.name,
        "general.type": "model",
        **({"general.name": name} if name else {}),
        "general.file_type": _main(tensors, chosen).file,
        "general.quantization_version": 2,
    }
    total, done = sum(tensor.size for tensor in tensors), 0

    def wrote(size: int) -> None:
        nonlocal done
        done += size
        advance(done / total)

    write(path, {**general, **metadata, **words}, tensors, wrote)
    return path


def _described(spec: Transformer, origin: Origin | None) -> tuple[dict[str, Any], Architecture, Family]:
    """The Hub's configuration of a model, and llama.cpp's architecture."""
    said = None if origin is None else origin.config.get("model_type")
    family = family_of(spec, "bert" if said in AS_BERT else said)
    config = family.config(spec)
    architecture = of_model_type(family.model_type)
    cls = config["architectures"][0]
    if cls != architecture.hub_class:
        raise ValueError(
            f"GGUF is written for {architecture.hub_class} of this family, and this model is a {cls}; save it in the Hub's "
            "format with --to hub"
        )
    return config, architecture, family


def _warn_of_windows(spec: Transformer, metadata: dict[str, Any]) -> None:
    """Warn if the context became shorter, so no sliding window is."""
    context = metadata.get("context_length")
    if context is not None and spec.max_positions is not None and context < spec.max_positions:
        warnings.warn(
            f"llama.cpp computes no sliding windows here, so the context that is written is the window's: {context} of "
            f"{spec.max_positions} tokens",
            stacklevel=3,
        )


def _around(tokenizer: Tokenizer, task: Use, origin: Origin | None) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text that the model reads."""
    if origin is None or origin.is_ours:
        before = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
        return before, [] if task == "continue" or tokenizer.eos_id is None else [tokenizer.eos_id]
    encoding = tokenizer.raw.encode("a", add_special_tokens=True)
    mask = "".join(map(str, encoding.special_tokens_mask))
    first, last = len(mask) - len(mask.lstrip("1")), len(mask.rstrip("1"))
    return list(encoding.ids[:first]), list(encoding.ids[last:])


# -- tensors ------------------------------------------------------------------------------------------------------------


def _tensors(
    model: TransformerModel, architecture: Architecture, chosen: BlockType, factors: dict[str, Tensor]
) -> Iterator[Written]:
    """Every tensor to write. Warns if rows are no whole blocks of the type."""
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    codes = {f"{path}.weight": matrix for path, matrix in quantized(model).items()}
    named = build(model.spec, device="meta") if codes else model
    entries = list(Names.of(architecture.rows(model.spec), named).written())
    tied = all(OUTPUT not in entry.theirs for entry in entries)
    fallen: list[str] = []
    for entry in entries:
        kept = _kept(entry, codes)
        for index, (name, shape) in enumerate(zip(entry.theirs, entry.their_shapes, strict=True)):
            make: Callable[[], Tensor]
            if kept is not None:
                kind, make = type_of(kept[index], name), partial(bytes_of, kept[index], name)
            else:
                kind = _kind(name, shape, chosen, tied)
                if shape[-1] % kind.width:
                    fallen.append(name)
                    kind = BY_NAME["f16"]
                make = _maker(entry, index, kind, _dense(entry, state, codes), name)
            yield Written(name, kind, shape, make)
            if name == EMBEDDING and tied and architecture.untied:
                yield Written(OUTPUT, kind, shape, make)
    for name, tensor in factors.items():
        yield Written(name, F32, tuple(tensor.shape), partial(quantize, tensor.float(), F32))
    if fallen:
        warnings.warn(
            f"{len(fallen)} matrices, such as {fallen[0]}, are written as f16: their rows are no multiple of "
            f"{chosen.width}, the length of a block of {chosen.name}",
            stacklevel=3,
        )


def _kept(entry: StoredPlace, codes: Mapping[str, QuantizedMatrix]) -> list[Packed] | None:
    """The quantized matrices of an entry, one for each of their names; None if they are in full precision there."""
    found = [codes[name] for name in entry.ours if name in codes]
    if not found or any(part in name for part in PLAIN_ROWS for name in entry.theirs):
        return None
    if len(found) < len(entry.ours) or (len(entry.theirs) > 1 and entry.how is not SAME):
        raise ValueError(f"{entry.theirs[0]} is one matrix in GGUF, and here quantized in part; quantize all of it")
    return [one.packed for one in joined(entry, found).values()]


def _dense(
    entry: StoredPlace, state: Mapping[str, Tensor], codes: Mapping[str, QuantizedMatrix]
) -> Mapping[str, Tensor]:
    """The tensors of an entry, dequantized."""
    return {**state, **{name: codes[name].dense() for name in entry.ours if name in codes}}


def _main(tensors: Sequence[Written], chosen: BlockType) -> BlockType:
    """Return the type that most quantized values of the file have, or the chosen type if there are none."""
    count: Counter[BlockType] = Counter()
    for tensor in tensors:
        count[tensor.type] += math.prod(tensor.shape) if tensor.type.width > 1 else 0
    return count.most_common(1)[0][0] if count.total() else chosen


def _kind(name: str, shape: tuple[int, ...], chosen: BlockType, tied: bool) -> BlockType:
    if len(shape) < 2 or "norm" in name or any(part in name for part in PLAIN_ROWS):
        return F32
    if chosen.name[:2] in ("q4", "q5") and (name == OUTPUT or (tied and name == EMBEDDING)):
        return BY_NAME["q8_0"]
    return chosen


def _maker(
    entry: StoredPlace, index: int, kind: BlockType, state: Mapping[str, Tensor], name: str
) -> Callable[[], Tensor]:
    def make() -> Tensor:
        tensor = list(entry.to_theirs({ours: state[ours] for ours in entry.ours}).values())[index].cpu()
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"the tensor {name} of this model holds NaN or infinities, which GGUF's types can't")
        if kind.name not in ("f32", "bf16") and float(tensor.abs().max()) > 65504:
            raise ValueError(f"the tensor {name} has numbers beyond fp16's largest, 65,504; choose --type bf16 or f32")
        return quantize(tensor, kind)

    return make


def _check_read_back(
    architecture: Architecture, family: Family, metadata: dict[str, Any], config: dict[str, Any], tensors: list[Written]
) -> None:
    """Check that what is written describes the same model, so no setting is lost that llama.cpp has no key for."""
    prefix = f"{architecture.name}."
    inside = {key.removeprefix(prefix): value for key, value in metadata.items()}
    names = {tensor.name: tensor for tensor in tensors}
    read = architecture.config(inside, names, config["vocab_size"])
    if architecture.tied is not None and config.get(architecture.tied) is not None:
        read[architecture.tied] = config[architecture.tied]
    factors = {name: t.make().view(torch.float32) for name, t in names.items() if name.startswith("rope_f")}
    read = with_factors(read, factors)
    differences = difference(family.spec(read), family.spec(architecture.as_written(config)))
    for path, (theirs, ours) in differences.items():
        raise ValueError(
            f"llama.cpp's {architecture.name} has {path} = {brief(theirs)}, and this model {brief(ours)}, for which "
            "GGUF has no key"
        )
