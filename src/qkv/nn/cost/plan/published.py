"""Published training runs, with what the model predicts for them (`qkv cost --published`).

The runs are in `published.yaml`. Rows marked `calibrated` set the shares of `KERNELS`; nothing was fitted to the others.
What a source does not say was assumed, and the row says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from ....core import yamls
from ...models.base import ModelSpec
from ..accelerators import KNOWN, Accelerator
from ..flops import TRAINING
from .execution import Execution, Kernels
from .execution import kernels as kernels_of
from .layout import RankLayout
from .network import KNOWN as NETWORKS
from .rank_memory import RankMemory, memory
from .step import Machine, StepSeconds, step
from .work import ModelWork, work

TOLERANCE = 0.15
_FILE = Path(__file__).with_name("published.yaml")
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

EXECUTIONS = {
    "torchtitan": TITAN,
    "torchtitan, compiled": COMPILED,
    "torchtitan, fp8": FP8,
    "torchtitan, async TP": ASYNC,
    "LLM-Foundry": FOUNDRY,
    "Megatron-LM 2021": MEGATRON,
    "Megatron-Core 2024": MEGATRON_CORE,
    "Llama 3": LLAMA3,
}
DEVICES = {**KNOWN, H100_500W.name: H100_500W}


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
    """The work of a model. If `changes` has `n_layers`, all layers are equal, and it follows from the work of one."""
    sizes = {**dict(changes), "max_positions": length}
    layers = sizes.pop("n_layers", None)
    if layers is None:
        return work(name, make(name, sizes), length)
    one = work(name, make(name, {**sizes, "n_layers": 1}), length)
    layer = one.layers[0]
    flops = one.flops + (layers - 1) * TRAINING * layer.flops
    return replace(one, layers=one.layers * layers, flops=flops)


def _counted(run: Published, model: ModelWork) -> float:
    """FLOPs of a token as the source counts them: all pairs of tokens, and recomputation in 2021 (Narayanan et al. 2021,
    equation 3; Korthikanti et al. 2022, appendix A); causal pairs in Llama 3."""
    if run.how is LLAMA3:
        return model.flops / model.tokens
    sizes = run.model[1]
    n, d, s, v = sizes["n_layers"], sizes["d_model"], run.length, sizes["vocab_size"]
    if run.how is MEGATRON:
        return 96 * n * d * d * (1 + s / (6 * d) + v / (16 * n * d))
    return 72 * n * d * d * (1 + s / (6 * d) + v / (12 * n * d))


@cache
def published_runs() -> tuple[Published, ...]:
    """The runs of `published.yaml`, in its order."""
    data = yamls.load(_FILE.read_text(encoding="utf-8"), str(_FILE))
    models = {name: (sizes.pop("preset"), sizes) for name, sizes in data["models"].items()}
    rows = ({**group, **row} for group in data["runs"] for row in group.pop("rows"))
    return tuple(_published(row, models) for row in rows)


def _published(row: dict[str, Any], models: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Published:
    row["model"], row["device"], row["how"] = models[row["model"]], DEVICES[row["device"]], EXECUTIONS[row["how"]]
    row["layout"], row["value"] = RankLayout(**row["layout"]), float(row["value"])
    return Published(**row)


def extrapolated(model: ModelWork, layout: RankLayout, machine: Machine) -> list[str]:
    """Return what a plan has that no published run has; empty if one was like it."""
    runs = published_runs()
    layouts = [run.layout for run in runs]
    same = [run for run in runs if run.layout.context == layout.context]
    ranks = max(one.ranks for one in layouts)
    longest = max(run.length for run in same or runs)
    narrowest = min(int(run.model[1].get("d_model", 4096)) for run in runs)
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
