"""Published training runs, with what the model predicts for them (`qkv cost --published`).

Rows marked `calibrated` set the shares of `KERNELS`; nothing was fitted to the others. What a source does not say was
assumed, and the row says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from ...models.base import ModelSpec
from ..accelerators import KNOWN, Accelerator
from ..flops import TRAINING
from .execution import Execution, Kernels
from .execution import kernels as kernels_of
from .layout import RankLayout, Recompute
from .network import KNOWN as NETWORKS
from .rank_memory import RankMemory, memory
from .step import Machine, StepSeconds, step
from .work import ModelWork, work

TOLERANCE = 0.15
MakeSpec = Callable[[str, Mapping[str, Any]], ModelSpec]
Unit = Literal["tokens/s", "TFLOP/s"]

TITAN = Execution("torchtitan", gathered=2, copies=0, gather_once=True, context_shards=True, fused_loss=False)
COMPILED = replace(TITAN, compiled=True)
FP8 = replace(COMPILED, fp8=True)
FP8_2025 = replace(FP8, gathered=1, logit=4)  # parameters are gathered in fp8, and the loss is compiled too
ASYNC = replace(FP8, tensor_overlap=0.5, pipeline_overlap=False)
# FSDP, LayerNorm in bf16, and a loss of one kernel, which keeps logits and their gradient in bf16.
FOUNDRY = Execution("LLM-Foundry", gathered=2, copies=0, fused_loss=False, logit=4, fused_norm=True)
MEGATRON = Execution(
    "Megatron-LM 2021",
    weights=2,
    gradients=2,
    optimizer=12,
    copies=0,
    reduced=2,
    gathered=2,
    compiled=True,
    tiled=False,
    data_overlap=False,
    sequence=False,
)
MEGATRON_CORE = replace(
    MEGATRON,
    name="Megatron-Core 2024",
    gradients=4,
    reduced=4,
    tiled=True,
    data_overlap=True,
    sequence=True,
    tensor_overlap=0.5,
    pipeline_overlap=True,
    gather_overlap=True,
)
LLAMA3 = replace(MEGATRON_CORE, name="Llama 3", tensor_overlap=0.0, gather_once=True, ring=1.0)

# Meta's hosts for torchtitan's benchmarks: H100s of 96 GB HBM2e, limited to 500 W.
H100_500W = Accelerator("h100-500w", KNOWN["h100"].flops, 2.4e12, 96e9, 500)

LLAMA_8B: tuple[str, dict[str, int]] = ("llama-3-8b", {})
LLAMA_70B = ("llama-3-8b", {"n_layers": 80, "d_model": 8192, "n_heads": 64, "d_ff": 28672})
LLAMA_405B = ("llama-3-8b", {"n_layers": 126, "d_model": 16384, "n_heads": 128, "d_ff": 53248})


def llama_2(billions: Literal[13, 70]) -> tuple[str, Mapping[str, Any]]:
    """Llama 2 of 13 or 70 billion parameters."""
    sizes = {
        13: {"n_layers": 40, "d_model": 5120, "n_heads": 40, "n_kv_heads": 40, "d_ff": 13824},
        70: {"n_layers": 80, "d_model": 8192, "n_heads": 64, "d_ff": 28672},
    }
    return "llama-3-8b", {**sizes[billions], "vocab_size": 32000}


TITAN_DOCS = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
FOUNDRY_README = "mosaicml/llm-foundry, scripts/train/benchmarking/README.md"
MEGATRON_2021 = (
    "Narayanan et al. 2021, table 1; NVIDIA/Megatron-LM, examples/academic_paper_scripts/sc21/run_table_1.sh"
)
MEGATRON_2024 = "NVIDIA/Megatron-LM README, 2024, images/model_table.png"
LLAMA3_PAPER = "Dubey et al. 2024 (The Llama 3 Herd of Models), table 4"


@dataclass(frozen=True)
class Published:
    """A published run.

    value:   tokens per second of a GPU, or TFLOP/s of a GPU as the source counts them.
    kernels: by their name in `KERNELS`, if they are not the usual ones of the device.
    """

    name: str
    model: tuple[str, Mapping[str, Any]]
    length: int
    layout: RankLayout
    device: Accelerator
    network: str
    how: Execution
    value: float
    unit: Unit
    source: str
    calibrated: bool = False
    memory_gib: float | None = None
    assumed: str = ""
    kernels: str = ""

    @property
    def machine(self) -> Machine:
        return Machine(self.device, NETWORKS[self.network], kernels_of(self.kernels or self.device.name), self.how)


@dataclass(frozen=True)
class PublishedComparison:
    """A published run beside its prediction, in the unit of the source."""

    published: Published
    step: StepSeconds
    memory: RankMemory
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput."""
        return self.predicted / self.published.value - 1

    @property
    def within(self) -> bool:
        return abs(self.error) <= TOLERANCE


def compare(run: Published, make: MakeSpec) -> PublishedComparison:
    """Predict a published run."""
    model = _work(run.model[0], tuple(sorted(run.model[1].items())), run.length, make)
    predicted = step(model, run.layout, run.machine)
    value = predicted.tokens_per_second
    if run.unit == "TFLOP/s":
        value *= _counted(run, model) / 1e12
    return PublishedComparison(run, predicted, memory(model, run.layout, run.how), value)


def markdown(rows: Sequence[PublishedComparison]) -> str:
    """The table of `docs/scale.md`, by source. Calibrated rows have a star, and those beyond the tolerance are bold."""
    lines: list[str] = []
    for source, group in itertools.groupby(rows, key=lambda row: row.published.source):
        some = list(group)
        lines += ["", f"{source}, {some[0].published.unit} of a GPU:", ""]
        lines += ["| run | published | predicted | error | memory, GiB | published |", "|---|---:|---:|---:|---:|---:|"]
        for row in some:
            run = row.published
            error = f"{row.error:+.1%}" if row.within else f"**{row.error:+.1%}**"
            gib = "" if run.memory_gib is None else f"{run.memory_gib:.1f}"
            held = f"{row.memory.needed / 2**30:.1f}"
            name = run.name + (" *" if run.calibrated else "") + (" †" if run.assumed else "")
            lines.append(f"| {name} | {run.value:,.6g} | {row.predicted:,.5g} | {error} | {held} | {gib} |")
    assumed = dict.fromkeys(row.published.assumed for row in rows if row.published.assumed)
    return "\n".join(
        [*lines[1:], "", "\\* calibrated. † assumed, as the source does not say: " + "; ".join(assumed) + "."]
    )


@lru_cache(maxsize=64)
def _work(name: str, changes: tuple[tuple[str, Any], ...], length: int, make: MakeSpec) -> ModelWork:
    """The work of a model of equal layers, from a spec with one of them."""
    sizes = {**dict(changes), "max_positions": length}
    layers = sizes.pop("n_layers", 32)
    one = work(name, make(name, {**sizes, "n_layers": 1}), length)
    layer = one.layers[0]
    flops = one.flops + (layers - 1) * TRAINING * layer.flops
    return replace(one, layers=one.layers * layers, flops=flops)


def _counted(run: Published, model: ModelWork) -> float:
    """FLOPs of a token as the source counts them: all pairs of tokens, and recomputation in 2021 (Narayanan et al. 2021,
    equation 3; Korthikanti et al. 2022, appendix A); causal pairs in Llama 3."""
    if run.source == LLAMA3_PAPER:
        return model.flops / model.tokens
    sizes = run.model[1]
    n, d, s, v = sizes["n_layers"], sizes["d_model"], run.length, sizes["vocab_size"]
    if run.source == MEGATRON_2021:
        return 96 * n * d * d * (1 + s / (6 * d) + v / (16 * n * d))
    return 72 * n * d * d * (1 + s / (6 * d) + v / (12 * n * d))


def _run(*fields: Any, **named: Any) -> Published:
    return Published(*fields, **named)


def _titan(name: str, how: Execution, value: float, gib: float, **layout: Any) -> dict[str, Any]:
    return {"name": name, "how": how, "value": value, "memory_gib": gib, "layout": RankLayout(**layout)}


def _torchtitan() -> list[Published]:
    base = {"device": H100_500W, "network": "nvlink4-ndr", "unit": "tokens/s", "source": TITAN_DOCS}
    rows: list[Published] = []

    def add(model: tuple[str, Mapping[str, Any]], length: int, calibrated: bool = False, **row: Any) -> None:
        assumed = row.pop("assumed", "")
        rows.append(_run(model=model, length=length, calibrated=calibrated, assumed=assumed, **base, **row))

    for ranks, values in ((8, (5762, 6667, 8532)), (128, (5605, 6514, 8380))):
        for what, how, value, gib in zip(
            ("", ", compiled", ", compiled, fp8"),
            (TITAN, COMPILED, FP8),
            values,
            (82.4, 77.0, 76.8) if ranks == 8 else (67.0, 62.0, 61.8),
            strict=True,
        ):
            row = _titan(
                f"Llama 8B, {ranks} H100, FSDP{what}",
                how,
                value,
                gib,
                shard=ranks,
                zero=3,
                rows=2,
                recompute="products",
            )
            add(LLAMA_8B, 8192, ranks == 8, **row)
    for context, value, gib in ((1, 3890, 83.9), (2, 2540, 84.2), (4, 1071, 84.0), (8, 548, 84.5)):
        length = 32768 * context
        row = _titan(
            *(f"Llama 8B, 8 H100, FSDP, CP {context}, {length:,} tokens, fp8", FP8, value, gib),
            shard=8 // context,
            context=context,
            zero=3,
            recompute="blocks",
        )
        add(LLAMA_8B, length, context in (1, 8), **row)
    for what, how, value, gib in (("", FP8, 829, 71.9), (", async TP", ASYNC, 876, 67.6)):
        row = _titan(
            *(f"Llama 70B, 256 H100, FSDP 32, TP 8{what}, fp8", how, value, gib),
            shard=32,
            tensor=8,
            zero=3,
            rows=16,
            recompute="blocks",
        )
        add(LLAMA_70B, 8192, **row)
    for what, chunks, value, gib in (("1F1B", 1, 100, 82.5), ("interleaved 1F1B", 2, 128, 72.7)):
        row = _titan(
            *(f"Llama 405B, 512 H100, FSDP 8, TP 8, PP 8 {what}, fp8", ASYNC, value, gib),
            shard=8,
            tensor=8,
            pipeline=8,
            zero=3,
            rows=4,
            microbatches=8,
            chunks=chunks,
            recompute="blocks",
        )
        add(LLAMA_405B, 8192, assumed="8 microbatches, torchtitan's default", **row)
    for context, value, gib in ((1, 76, 75.3), (2, 47, 75.9), (4, 31, 77.1), (8, 16, 84.9)):
        length = 32768 * context
        row = _titan(
            *(f"Llama 405B, 512 H100, TP 8, PP 8, CP {context}, {length:,} tokens, fp8", ASYNC, value, gib),
            shard=8 // context,
            context=context,
            tensor=8,
            pipeline=8,
            zero=3,
            microbatches=8,
            recompute="blocks",
        )
        add(LLAMA_405B, length, assumed="8 microbatches, torchtitan's default", **row)
    return rows


def gpt(d_model: int, n_heads: int, n_layers: int, vocab_size: int) -> tuple[str, Mapping[str, Any]]:
    """GPT-2 in other sizes."""
    sizes = {
        "d_model": d_model,
        "n_heads": n_heads,
        "n_layers": n_layers,
        "vocab_size": vocab_size,
        "d_ff": 4 * d_model,
    }
    return "gpt2", sizes


_MPT = {
    "1B": (2048, 16, 24),
    "3B": (2560, 20, 32),
    "7B": (4096, 32, 32),
    "13B": (5120, 40, 40),
    "30B": (7168, 56, 48),
    "70B": (8192, 64, 80),
}
# Device, model, tokens, GPUs, rows and number of microbatches, whether blocks are recomputed, and tokens/s of a GPU.
_FOUNDRY = (
    ("h100", "1B", 8192, 8, 3, 4, False, 29157),
    ("h100", "1B", 65536, 8, 1, 2, True, 5506),
    ("h100", "1B", 2048, 64, 20, 1, False, 44402),
    ("h100", "3B", 16384, 8, 1, 6, False, 11152),
    ("h100", "3B", 65536, 8, 1, 2, True, 3262),
    ("h100", "3B", 2048, 64, 6, 3, False, 22525),
    ("h100", "7B", 8192, 8, 8, 2, True, 6935),
    ("h100", "7B", 32768, 8, 2, 2, True, 3318),
    ("h100", "7B", 65536, 8, 1, 2, True, 1956),
    ("h100", "13B", 4096, 8, 10, 3, True, 4717),
    ("h100", "13B", 16384, 8, 3, 3, True, 2985),
    ("h100", "13B", 2048, 64, 2, 1, False, 4800),
    ("h100", "30B", 2048, 16, 10, 3, True, 2263),
    ("h100", "30B", 8192, 8, 1, 21, True, 1384),
    ("h100", "70B", 2048, 64, 8, 4, True, 1039),
    ("a100", "1B", 8192, 8, 3, 4, False, 13814),
    ("a100", "1B", 32768, 8, 1, 4, False, 6275),
    ("a100", "3B", 4096, 8, 5, 6, False, 9457),
    ("a100", "3B", 16384, 8, 1, 6, False, 5529),
    ("a100", "7B", 16384, 8, 4, 2, True, 2453),
    ("a100", "7B", 65536, 8, 1, 2, True, 1013),
    ("a100", "13B", 8192, 8, 5, 3, True, 1795),
    ("a100", "13B", 32768, 8, 1, 3, True, 1016),
    ("a100", "30B", 1024, 8, 6, 21, True, 946),
    ("a100", "70B", 2048, 32, 2, 16, True, 373),
)
# Of each device, a run of long rows (attention), one of wide products, and one whose communication is long beside them.
_FOUNDRY_CALIBRATED = {
    *(("h100", "7B", 65536), ("h100", "30B", 2048), ("h100", "13B", 2048)),
    *(("a100", "7B", 65536), ("a100", "30B", 1024), ("a100", "70B", 2048)),
}


def _foundry() -> list[Published]:
    rows = []
    for device, size, length, gpus, at_once, many, recomputed, value in _FOUNDRY:
        width, heads, layers = _MPT[size]
        again: Recompute = "blocks" if recomputed else "none"
        layout = RankLayout(shard=gpus, zero=3, microbatches=many, rows=at_once, recompute=again)
        rows.append(
            _run(
                *(f"MPT {size}, {gpus} {device.upper()}, FSDP, {length:,} tokens", gpt(width, heads, layers, 50_432)),
                *(length, layout, KNOWN[device], {"a100": "nvlink3-hdr", "h100": "nvlink4-ndr"}[device], FOUNDRY),
                *(float(value), "tokens/s", FOUNDRY_README),
                calibrated=(device, size, length) in _FOUNDRY_CALIBRATED,
                kernels=f"{device}-foundry",
            )
        )
    return rows


# name, heads, width, layers, tensor, pipeline, GPUs, rows of a step and of a microbatch, chunks, TFLOP/s of a GPU. The table
# has widths, GPUs, batches and speeds; run_table_1.sh, which made it, has heads, both sizes of model parallelism,
# microbatches and chunks too.
_MEGATRON_2021 = (
    ("1.7B", 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137),
    ("3.6B", 32, 3072, 30, 2, 1, 64, 512, 16, 1, 138),
    ("7.5B", 32, 4096, 36, 4, 1, 128, 512, 16, 1, 142),
    ("18B", 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 135),
    ("39B", 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 138),
    ("76B", 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140),
    ("145B", 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148),
    ("310B", 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155),
    ("530B", 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163),
    ("1T", 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 163),
)
_MEGATRON_2024 = (
    ("1.7B", 16, 2048, 24, 1, 1, 48, 192, 408.8),
    ("7.1B", 32, 4096, 30, 2, 1, 96, 192, 465.9),
    ("16B", 48, 6144, 32, 4, 1, 192, 192, 489.1),
    ("32B", 56, 7168, 48, 8, 1, 384, 192, 459.6),
    ("70B", 64, 8192, 84, 8, 2, 768, 384, 419.7),
    ("119B", 80, 10240, 92, 8, 4, 1536, 768, 420.5),
    ("177B", 96, 12288, 96, 8, 6, 2304, 1152, 432.8),
    ("314B", 128, 16384, 96, 8, 8, 3072, 1536, 474.4),
    ("462B", 144, 18432, 112, 8, 16, 6144, 3072, 459.9),
)


def _megatron() -> list[Published]:
    rows: list[Published] = []
    value: float
    for name, heads, d, n, t, p, gpus, batch, at_once, chunks, value in _MEGATRON_2021:
        data = gpus // (t * p)
        many = batch // (data * at_once)
        layout = RankLayout(p, data, tensor=t, microbatches=many, rows=at_once, chunks=chunks, recompute="blocks")
        rows.append(
            _run(
                *(f"GPT {name}, {gpus:,} A100, TP {t}, PP {p}, DP {data}", gpt(d, heads, n, 51_200), 2048, layout),
                *(KNOWN["a100"], "nvlink3-hdr", MEGATRON, value, "TFLOP/s", MEGATRON_2021),
                calibrated=name in ("1.7B", "18B"),
            )
        )
    for name, heads, d, n, t, p, gpus, batch, value in _MEGATRON_2024:
        at_once, many = (batch // 48, 1) if p == 1 else (1, batch // 48)
        layout = RankLayout(pipeline=p, shard=48, zero=1, tensor=t, microbatches=many, rows=at_once)
        rows.append(
            _run(
                *(f"GPT {name}, {gpus:,} H100, TP {t}, PP {p}, DP 48", gpt(d, heads, n, 131_072), 4096, layout),
                *(KNOWN["h100"], "nvlink4-ndr", MEGATRON_CORE, value, "TFLOP/s", MEGATRON_2024),
                calibrated=name in ("1.7B", "7.1B"),
                assumed="microbatches of one row, not interleaved" if p > 1 else "one microbatch",
            )
        )
    return rows


def _llama3() -> list[Published]:
    rows = []
    for gpus, length, context, data, batch, value in (
        (8192, 8192, 1, 64, 32, 430),
        (16384, 8192, 1, 128, 16, 400),
        (16384, 131_072, 16, 8, 16, 380),
    ):
        layout = RankLayout(pipeline=16, shard=data, zero=3, context=context, tensor=8, microbatches=batch, chunks=8)
        rows.append(
            _run(
                *(f"Llama 405B, {gpus:,} H100, TP 8, CP {context}, PP 16, DP {data}", LLAMA_405B, length, layout),
                *(KNOWN["h100"], "nvlink4-ndr", LLAMA3, value, "TFLOP/s", LLAMA3_PAPER),
                assumed="interleaved stages of one layer, causal FLOPs",
            )
        )
    return rows


RUNS = (*_torchtitan(), *_foundry(), *_megatron(), *_llama3())


def extrapolated(model: ModelWork, layout: RankLayout, machine: Machine) -> list[str]:
    """Return what a plan has that no published run has; empty if one was like it."""
    layouts = [run.layout for run in RUNS]
    same = [run for run in RUNS if run.layout.context == layout.context]
    ranks = max(one.ranks for one in layouts)
    longest = max(run.length for run in same or RUNS)
    narrowest = min(int(run.model[1].get("d_model", 4096)) for run in RUNS)
    context = f" with context={layout.context}" if layout.context > 1 and same else ""
    found = {
        f"the kernels of {machine.device.name}": machine.kernels == Kernels(),
        f"products in {machine.precision}": machine.precision != "bf16",
        f"{layout.ranks:,} ranks (at most {ranks:,})": layout.ranks > ranks,
        f"rows of {model.length:,} tokens{context} (at most {longest:,})": model.length > longest,
        f"context={layout.context}": not same,
        f"a width of {model.d_model:,} (at least {narrowest:,})": model.d_model < narrowest,
        "mixtures of experts": any(layer.n_experts for layer in model.kinds),
        "models other than language models": model.tokens != model.length or not model.outputs or not model.transformer,
        f"zero={layout.zero}": layout.zero not in {one.zero for one in layouts},
        f"the schedule {layout.schedule}": layout.pipeline > 1 and layout.schedule not in ("1f1b", "interleaved-1f1b"),
        f"recompute={layout.recompute}": layout.recompute not in {one.recompute for one in layouts},
    }
    return [what for what, beyond in found.items() if beyond]
