"""How training is executed: bytes of each number, what is fused and overlapped, and the speed that kernels reach.

`Execution` says what a framework does, `Kernels` what share of a device's peak its kernels reach. Shares were set from a few
published runs, which `published.py` marks as calibrated; all others are predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Execution:
    """How a framework computes a training step.

    width:            bytes of an activation.
    weights, gradients, optimizer: bytes stored for each parameter. tables: the optimizer's bytes for a parameter of an
                      embedding or an output layer, if they differ. copies: further bytes while a parameter is used, such as
                      autocast's copies; ZeRO 3 has none, because it gathers parameters in the dtype of products.
    gathered, reduced: bytes of a parameter that ZeRO 3 gathers, and of a gradient that is summed.
    compiled:         element-wise operations are fused, as by torch.compile.
    tiled:            scores of attention stay on the chip (FlashAttention).
    data_overlap:     sums of gradients, and ZeRO 3's gathering, run beside computation.
    tensor_overlap:   the share of tensor parallelism's communication that is hidden behind products.
    pipeline_overlap: sends between stages are hidden.
    sequence:         tensor parallelism divides tokens between its layers (Korthikanti et al. 2022).
    gather_once:      ZeRO 3 beside a pipeline gathers once a step, not for every microbatch.
    keeps_parameters: ZeRO 3 keeps gathered parameters from forward to backward (FSDP's SHARD_GRAD_OP).
    gather_overlap:   ZeRO 1 and 2 gather updated parameters beside the next forward pass.
    context_shards:   ZeRO divides over context ranks too.
    fused_loss:       logits are computed and used chunk by chunk. logit: bytes of each otherwise: in bf16, in fp32, and its
                      gradient; 4 if the loss is compiled.
    ring:             speed of ring attention to blocks of other ranks, relative to attention on one device.
    head_whole:       every context rank computes the loss of all tokens.
    overlap_inside:   gradient sums overlap with computation even if layers communicate too.
    reserve:          bytes taken by the device context, communication buffers and libraries.
    imbalance:        tokens of the fullest expert rank, relative to the mean; 1.25 is the usual capacity factor, with which
                      few tokens are dropped (Fedus et al. 2021).
    keeps_gathered:   inputs gathered by tensor parallelism are kept for backward, not gathered again.
    fp8:              products of layers are computed in fp8.
    begins_whole:     every rank makes the whole model at the start, before it is divided.
    in_parts:         evaluations can gather one block at a time in ZeRO 3.
    fused_norm:       a norm is one kernel, as LayerNorm in PyTorch, and not several, as RMSNorm in fp32.
    """

    name: str
    width: int = 2
    weights: float = 4
    gradients: float = 4
    optimizer: float = 8
    tables: float | None = None
    copies: float = 2
    gathered: float = 4
    reduced: float = 4
    compiled: bool = False
    tiled: bool = True
    data_overlap: bool = True
    tensor_overlap: float = 0.0
    pipeline_overlap: bool = False
    sequence: bool = True
    gather_once: bool = False
    keeps_parameters: bool = False
    gather_overlap: bool = False
    context_shards: bool = False
    fused_loss: bool = True
    logit: float = 10.0
    ring: float = 0.7
    fp8: bool = False
    head_whole: bool = False
    overlap_inside: bool = True
    imbalance: float = 1.25
    keeps_gathered: bool = False
    fused_norm: bool = False
    begins_whole: bool = False
    in_parts: bool = True
    reserve: float = 1e9


QKV = Execution("qkv", gathered=2, head_whole=True, overlap_inside=False, keeps_gathered=True)
QKV_FP32 = replace(QKV, width=4, copies=0, gathered=4)


def on_cpu(how: Execution) -> Execution:
    """Return the execution on CPUs, where communication uses the same cores as computation."""
    return replace(how, data_overlap=False, reserve=0.3e9)


@dataclass(frozen=True)
class Kernels:
    """Shares of a device's peak that kernels reach.

    products:  matrix products by precision, for matrices of a wide model. `half`: the width at which half of it is reached.
    attention: fused attention, forward and backward together.
    memory:    of the bandwidth, by element-wise kernels.
    launch:    seconds that starting a kernel takes.
    contention: slowdown by communication that runs beside computation, as a share of its time.
    """

    products: Mapping[str, float] = field(default_factory=lambda: {"bf16": 0.6, "fp8": 0.4})
    half: float = 0.0
    attention: float = 0.3
    memory: float = 0.8
    launch: float = 5e-6
    contention: float = 0.0
    source: str = "usual values, not calibrated"

    def of(self, precision: str) -> float:
        """The share of the peak that products reach in a precision."""
        return self.products.get(precision, self.products["bf16"])


KERNELS = {
    "h100": Kernels({"bf16": 0.70, "fp8": 0.48}, 1150, attention=0.35),
    "h100-500w": Kernels({"bf16": 0.63, "fp8": 0.47}, 1150, attention=0.25),
    "a100": Kernels({"bf16": 0.75}, 480, attention=0.5),
    # LLM-Foundry of 2023: FlashAttention in Triton; FSDP1, whose transfers slow products
    "h100-foundry": Kernels({"bf16": 0.76}, 1150, attention=0.18, contention=0.8),
    "a100-foundry": Kernels({"bf16": 0.84}, 480, attention=0.34, contention=0.5),
    "this": Kernels(
        {"bf16": 0.8, "fp32": 0.8}, 32, attention=0.4, source="shares of what was measured on this machine"
    ),
}


def kernels(hardware: str) -> Kernels:
    """The shares of peak for a device by name; usual values for others."""
    same = {"h200": "h100", "b200": "h100"}
    return KERNELS.get(same.get(hardware, hardware), Kernels())
