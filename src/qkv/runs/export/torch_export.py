"""torch.export and AOTInductor: write a model as programs that PyTorch runs without qkv, from Python and from C++.

Each graph of `export.graphs` becomes `NAME.pt2`, a `torch.export` program: an archive of the operations and the weights,
which `torch.export.load` reads and which can be compiled or lowered further. With `aot`, `NAME.so.pt2` beside it is an
AOTInductor package: the graph compiled to C++ with its weights, which `torch._inductor.aoti_load_package` in Python and
`torch::inductor::AOTIModelPackageLoader` in C++ run. `graphs.json` says the names, dtypes and axes of inputs and outputs,
in the order in which they are given as one list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core import atomic, several
from ...io.directories.layout import note_written, replaceable
from ...nn.kernels.native.compiler import compiler
from ...nn.models.recurrent.model import RecurrentModel
from ..inference.run import Run
from . import recurrent, verification
from .attention import by_fused_function
from .experts import has_experts
from .folder import contents, write_settings
from .graphs import Graph, graphs_of
from .support import check
from .tracing import quiet, traced

PROGRAM, PACKAGE, DESCRIPTION = ".pt2", ".so.pt2", "graphs.json"
TOLERANCE = 1e-4
FILES = contents("a torch.export model's directory", f"*{PROGRAM}", DESCRIPTION)
Tell = Callable[[str], None]


class TorchExported(NamedTuple):
    """What was written. `error`: the largest difference of outputs over the largest output; `compiled`: whether there are
    AOTInductor packages."""

    graphs: tuple[str, ...]
    size: int
    error: float
    compiled: bool


def to_torch_export(
    run: Run,
    target: Path | str,
    *,
    aot: bool | None = None,
    overwrite: bool = False,
    tell: Tell = lambda step: None,
) -> TorchExported:
    """Write a run's model to the directory `target`. A torch.export model that is there is replaced only if `overwrite` is
    true, or if this process wrote it from the same model.

    `aot` is whether to compile packages; None: if there is a C++ compiler. Raises ValueError, before anything is
    written, if a graph can't express a mechanism, a compiler is missing, or the target holds other files or may not be
    replaced. Also raises it if the programs don't compute what the model computes.
    """
    target = several.path(target)
    if aot and compiler() is None:
        raise ValueError("AOTInductor takes a C++ compiler, and there is none here: install g++, or leave --aot out")
    model = check(run.model, "torch.export")
    if aot and isinstance(model, RecurrentModel):
        raise ValueError(
            "AOTInductor can't compile a recurrent model's loop over sources of any length; leave --aot out: the programs "
            "alone are written then"
        )
    aot = compiler() is not None and not isinstance(model, RecurrentModel) if aot is None else aot
    with atomic.replacing_folder(target, replaceable(FILES, run.model, overwrite)) as folder:
        write_settings(run, folder)
        graphs = _graphs(model)
        for graph in graphs:
            tell(f"tracing {graph.name}")
            program = traced(graph)
            with quiet():
                torch.export.save(program, folder / f"{graph.name}{PROGRAM}")
            if aot:
                tell(f"compiling {graph.name}")
                _compile(_compilable(model, graph, program), folder / f"{graph.name}{PACKAGE}")
        described = {graph.name: _description(graph) for graph in graphs}
        atomic.write_file(folder / DESCRIPTION, (json.dumps(described, indent=2) + "\n").encode())
        tell("comparing with the model")
        error = verification.error(model, Programs(folder, described, compiled=aot))
        limit = TOLERANCE if model.dtype == torch.float32 else 0.05
        if not error <= limit:
            raise ValueError(
                f"the programs' outputs differ from the model's by {error:.1e} of the largest, more than {limit:.0e}, so "
                "nothing was written; please report the model's spec"
            )
        size = sum(path.stat().st_size for path in folder.glob(f"*{PROGRAM}"))
    note_written(FILES, run.model, target)
    return TorchExported(tuple(described), size, error, aot)


def _graphs(model: verification.Exportable, every_expert: bool = False) -> list[Graph]:
    if isinstance(model, RecurrentModel):
        return recurrent.graphs_of(model)
    return graphs_of(model, by_fused_function, every_expert)


def _compilable(
    model: verification.Exportable, graph: Graph, program: torch.export.ExportedProgram
) -> torch.export.ExportedProgram:
    """The program that AOTInductor compiles, in which no size depends on how many tokens choose an expert."""
    if not has_experts(model):
        return program
    return traced(next(other for other in _graphs(model, every_expert=True) if other.name == graph.name))


@torch.no_grad()
def _compile(program: torch.export.ExportedProgram, path: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    with quiet():
        aoti_compile_and_package(program, package_path=str(path))


def _description(graph: Graph) -> dict[str, Any]:
    """Names of inputs and outputs in order, with the inputs' dtype and sizes; a size that may differ is a name."""

    def sized(tensor: Tensor, axes: Mapping[int, str]) -> list[int | str]:
        return [axes.get(i, size) for i, size in enumerate(tensor.shape)]

    return {
        "inputs": [
            {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": sized(tensor, axes)}
            for name, (tensor, axes) in graph.inputs.items()
        ],
        "outputs": list(graph.outputs),
    }


class Programs:
    """The programs in a directory, or their compiled packages."""

    def __init__(self, folder: Path, described: Mapping[str, Any], compiled: bool) -> None:
        self.described = described
        self.functions: dict[str, Callable[[list[Tensor]], list[Tensor]]] = {}
        for name in described:
            if compiled:
                self.functions[name] = torch._inductor.aoti_load_package(str(folder / f"{name}{PACKAGE}"))
            else:
                self.functions[name] = torch.export.load(folder / f"{name}{PROGRAM}").module()

    @torch.no_grad()
    def __call__(self, name: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs of a graph. Of `inputs` those are taken that the graph has; a past that is not given is empty."""
        given = []
        for wanted in self.described[name]["inputs"]:
            if wanted["name"] in inputs:
                given.append(inputs[wanted["name"]].contiguous())  # compiled graphs don't read strides
            else:
                _, *sizes = wanted["shape"]
                given.append(verification.nothing(len(inputs["input_ids"]), sizes, getattr(torch, wanted["dtype"])))
        out = self.functions[name](given)
        return dict(zip(self.described[name]["outputs"], out, strict=True))
