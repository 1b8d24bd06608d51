"""`Network`: bandwidth and latency between ranks, inside a node and between nodes; known ones by name, others described.

A collective that stays inside a node uses its `inside` link (NVLink, PCIe, shared memory). One that leaves it is bound by
`between`, of which every rank of the node has an equal share (one network card per GPU in the named networks).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ....core.ranks import Ranks
from ....core.spec import brief, nearest


@dataclass(frozen=True)
class Link:
    """bandwidth: bytes per second that a rank sends, in one direction. latency: seconds of one message. reached: the share
    of the bandwidth that large messages reach."""

    bandwidth: float
    latency: float
    reached: float = 0.8

    @property
    def rate(self) -> float:
        """Bytes per second of large messages."""
        return self.bandwidth * self.reached


@dataclass(frozen=True)
class Network:
    """The links of a cluster with `ranks` ranks per node. `gpus`: whether ranks communicate through NCCL."""

    name: str
    ranks: int
    inside: Link
    between: Link
    source: str = ""
    gpus: bool = True

    def members(self, ranks: int, stride: int) -> int:
        """How many of a group of ranks, each `stride` after the one before, share a node."""
        return max(1, min(ranks, self.ranks // stride))

    def bandwidth(self, ranks: int, stride: int) -> float:
        """Bytes per second of each rank in a ring of a group. Each of its members in a node brings its network card, so
        the node's ring has several lanes to the next node."""
        here = self.members(ranks, stride)
        return self.inside.rate if here == ranks else min(self.inside.rate, here * self.between.rate)

    def latency(self, ranks: int, stride: int) -> float:
        """Seconds of a message between neighbors of a group: of the slower link, if it leaves the node."""
        return self.inside.latency if self.members(ranks, stride) == ranks else self.between.latency


# Bandwidths are nominal and in one direction. NCCL's large collectives reach about 360 GB/s of 450 inside an H100 node, and
# of 400 between two of them (NVIDIA/nccl, issues 1264 and 1277). Latencies are of NCCL's order of magnitude.
_HDR, _NDR = Link(25e9, 8e-6, 0.9), Link(50e9, 8e-6, 0.9)  # 200 and 400 Gb/s, a card for each GPU
KNOWN = {
    one.name: one
    for one in (
        Network(
            name="nvlink3-hdr",
            ranks=8,
            inside=Link(300e9, 3e-6),
            between=_HDR,
            source="DGX A100: NVLink 3, one 200 Gb/s HDR InfiniBand card for each GPU",
        ),
        Network(
            name="nvlink4-ndr",
            ranks=8,
            inside=Link(450e9, 3e-6),
            between=_NDR,
            source="DGX H100: NVLink 4, one 400 Gb/s NDR InfiniBand or RoCE card for each GPU",
        ),
        Network(
            name="nvlink5-ndr",
            ranks=8,
            inside=Link(900e9, 3e-6),
            between=_NDR,
            source="DGX B200: NVLink 5, one 400 Gb/s NDR InfiniBand card for each GPU",
        ),
        Network(
            name="nvlink5-72",
            ranks=72,
            inside=Link(900e9, 3e-6),
            between=_NDR,
            source="GB200 NVL72: 72 GPUs on NVLink 5, one 400 Gb/s card for each GPU",
        ),
        Network(
            name="nvlink4-ethernet",
            ranks=8,
            inside=Link(450e9, 3e-6),
            between=Link(12.5e9 / 8, 30e-6),
            source="eight H100s that share one 100 Gb/s Ethernet card",
        ),
        Network(
            name="pcie4-ethernet",
            ranks=8,
            inside=Link(32e9, 10e-6),
            between=Link(3.125e9 / 8, 50e-6),
            source="eight cards on PCIe 4 ×16 that share one 25 Gb/s Ethernet card",
        ),
        Network(
            name="loopback",
            ranks=64,
            inside=Link(1.5e9, 250e-6),
            between=Link(0.125e9, 400e-6),
            source="gloo over loopback (two ranks of an AMD EPYC: 64 bytes in 253 µs, 64 MB at 1.8 GB/s); 1 Gb/s Ethernet",
            gpus=False,
        ),
    )
}
OF_HARDWARE = {
    "a100": "nvlink3-hdr",
    "h100": "nvlink4-ndr",
    "h200": "nvlink4-ndr",
    "b200": "nvlink5-ndr",
    "4090": "pcie4-ethernet",
    "p100": "pcie4-ethernet",
}

EXAMPLE = '{"ranks": 8, "inside": 450e9, "between": 50e9}'
_FIELDS = ("ranks", "inside", "between", "inside_latency", "between_latency", "reached", "name")
_OPTIONAL = {"inside_latency": 3e-6, "between_latency": 10e-6, "reached": 0.8}


def network(given: str | Mapping[str, Any] | None, hardware: str = "") -> Network:
    """Return a network by name or description; by default the usual one of the hardware.

    Raises ValueError for an unknown name or field, with an example of a description.
    """
    if given is None:
        return KNOWN[OF_HARDWARE.get(hardware, "loopback" if hardware in ("this", "m4") else "nvlink4-ndr")]
    if isinstance(given, str):
        if given not in KNOWN:
            raise ValueError(
                f"there is no network {brief(given)}; {nearest(given, KNOWN)}; or describe it, in ranks of a node and bytes "
                f"per second of a rank: --network '{EXAMPLE}'"
            )
        return KNOWN[given]
    return _described(given)


def measured(ranks: Ranks) -> Network:
    """Measure the network between ranks on CPUs by all-reduces of one number and of four megabytes. All ranks call this."""

    def seconds(numbers: int, times: int) -> float:
        x = torch.ones(numbers)
        ranks.sum(x)
        ranks.barrier()
        start = time.perf_counter()
        for _ in range(times):
            ranks.sum(x)
        return max(ranks.max([time.perf_counter() - start])[0] / times, 1e-9)

    n, size = ranks.size, 1 << 20
    small = seconds(1, 8)
    large = max(seconds(size, 3) - small, 1e-6)
    link = Link(2 * (n - 1) / n * 4 * size / large, small / (2 * math.log2(n)), 1.0)
    return Network("measured", n, link, link, "sums over these ranks", gpus=False)


def _described(given: Mapping[str, Any]) -> Network:
    unknown = next((key for key in given if key not in _FIELDS), None)
    if unknown is not None:
        raise ValueError(f"a network has no {brief(unknown)}; {nearest(unknown, _FIELDS)}")
    missing = [key for key in ("ranks", "inside", "between") if key not in given]
    if missing:
        raise ValueError(f"a network needs {' and '.join(missing)}, as in --network '{EXAMPLE}'")
    values = {**_OPTIONAL, **{key: value for key, value in given.items() if key != "name"}}
    wrong = next(
        (k for k, v in values.items() if isinstance(v, bool) or not isinstance(v, int | float) or v <= 0), None
    )
    if wrong is not None:
        raise ValueError(f"{wrong} of the network is a positive number, not {brief(values[wrong])}")
    if values["ranks"] != int(values["ranks"]) or values["reached"] > 1:
        raise ValueError("ranks of a network is a whole number, and reached is a share of at most 1")
    return Network(
        str(given.get("name", "described")),
        int(values["ranks"]),
        Link(float(values["inside"]), float(values["inside_latency"]), float(values["reached"])),
        Link(float(values["between"]), float(values["between_latency"]), float(values["reached"])),
    )
