"""ONNX: write a model as graphs that onnxruntime runs, in the layout of files and with the names that `optimum` reads.

Each graph of `export.graphs` is traced, translated by PyTorch's exporter, checked against the model by running it, and
written as `NAME.onnx`; weights above 2 GB, protobuf's limit, stand beside it in `NAME.onnx.data`. Weights are fp32, or with
`int8` quantized by onnxruntime: one scale for each output channel, activations quantized at run time (W8A8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core import several
from ...core.atomic import remove, replacing_folder
from ...core.optional_libraries import need
from ...io.directories.layout import note_written, replaceable
from ...nn.models.recurrent.model import RecurrentModel
from ..inference.run import Run
from . import recurrent, verification
from .attention import by_products
from .folder import contents, write_settings
from .graphs import Graph, graphs_of
from .support import check
from .tracing import any_sizes, quiet, traced
from .verification import Exportable

OPSET = 20
LIMIT = 2**31 - 2**24  # bytes of weights in one file; protobuf's limit is 2 GiB with everything else
TOLERANCE = 1e-4
FILES = contents("an ONNX model's directory", "*.onnx", "*.onnx.data")
Tell = Callable[[str], None]


class ONNXExported(NamedTuple):
    """What was written. `error`: the largest difference of outputs over the largest output; `is_hub`: whether the
    configuration is in the Hub's format."""

    graphs: tuple[str, ...]
    size: int
    error: float
    is_hub: bool
    float_size: int | None = None
    float_error: float | None = None


def to_onnx(
    run: Run, target: Path | str, *, int8: bool = False, overwrite: bool = False, tell: Tell = lambda step: None
) -> ONNXExported:
    """Write a run's model to the directory `target`. An ONNX model that is there is replaced only if `overwrite` is
    true, or if this process wrote it from the same model.

    Raises ValueError, before anything is written, if a library is missing, a graph can't express a mechanism, or the
    target holds other files or may not be replaced. Also raises it if the graphs don't compute what the model computes.
    """
    target = several.path(target)
    need("export to ONNX", "onnx", "onnxscript", "onnxruntime")
    model = in_fp32(check(run.model, "ONNX"))
    with replacing_folder(target, replaceable(FILES, run.model, overwrite)) as folder:
        is_hub = write_settings(run, folder)
        graphs = recurrent.graphs_of(model) if isinstance(model, RecurrentModel) else graphs_of(model, by_products)
        for graph in graphs:
            tell(f"tracing {graph.name}")
            program = traced(graph)
            tell(f"translating {graph.name}")
            _translate(program, graph, folder / f"{graph.name}.onnx")
        tell("comparing with the model")
        error = verification.error(model, OnnxGraphs(folder))
        if not error <= TOLERANCE:
            raise ValueError(
                f"the graphs' outputs differ from the model's by {error:.1e} of the largest, more than {TOLERANCE:.0e}, so "
                "nothing was written; please report the model's spec"
            )
        names = tuple(graph.name for graph in graphs)
        exported = ONNXExported(names, _size(folder), error, is_hub)
        exported = _quantized(model, folder, exported, tell) if int8 else exported
    note_written(FILES, run.model, target)
    return exported


def in_fp32(model: Exportable) -> Exportable:
    """The model in fp32; a copy if it has another dtype."""
    if model.dtype == torch.float32:
        return model
    other: Exportable = type(model)(model.spec)  # type: ignore[arg-type]  # its own
    other.load_state_dict(model.state_dict())
    return other.float()


@torch.no_grad()
def _translate(program: torch.export.ExportedProgram, graph: Graph, path: Path) -> None:
    with any_sizes(), quiet():
        translated = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            opset_version=OPSET,
            optimize=True,
            verbose=False,
        )
        assert translated is not None
        _name_axes(translated.model.graph, graph)
        translated.save(str(path), external_data=_bytes(graph) > LIMIT)


def _bytes(graph: Graph) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in graph.module.parameters())


def _name_axes(written: Any, graph: Graph) -> None:
    """Name the axes of inputs and outputs whose size may differ; shapes between them are onnxruntime's to infer."""
    import onnx_ir as ir

    named = {name: axes for name, (_, axes) in graph.inputs.items()} | graph.outputs
    for value in (*written.inputs, *written.outputs):
        axes = named[value.name]
        if value.shape is not None:
            value.shape = ir.Shape([axes.get(i, size) for i, size in enumerate(value.shape)])
    outputs = {id(value) for value in written.outputs}
    for node in written.all_nodes():
        for value in node.outputs:
            if id(value) not in outputs:
                value.shape = None


def _size(folder: Path) -> int:
    """Bytes of the graphs."""
    return sum(path.stat().st_size for path in folder.glob("*.onnx*"))


def _quantized(model: Exportable, folder: Path, exported: ONNXExported, tell: Tell) -> ONNXExported:
    """Replace the graphs by quantized ones, and measure what that changes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for name in exported.graphs:
        tell(f"quantizing {name}")
        path, apart = folder / f"{name}.onnx", folder / "int8"
        apart.mkdir()
        with quiet():
            quantize_dynamic(
                _transposed(path),
                apart / path.name,
                op_types_to_quantize=["MatMul", "Gemm"],  # tables stay as they are
                weight_type=QuantType.QInt8,
                per_channel=True,
                use_external_data_format=path.with_name(f"{path.name}.data").exists(),
                extra_options={"MatMulConstBOnly": True},
            )
        remove(path.with_name(f"{path.name}.data"))
        for file in apart.iterdir():
            file.replace(folder / file.name)
        remove(apart)
    tell("comparing with the model")
    error = verification.error(model, OnnxGraphs(folder))
    return exported._replace(size=_size(folder), error=error, float_size=exported.size, float_error=exported.error)


def _transposed(path: Path) -> Any:
    """A graph whose products have their weights as they are multiplied: an output that shares its matrix with the embedding
    transposes it, and onnxruntime quantizes only weights that are constants."""
    import onnx

    graph = (written := onnx.load(path)).graph
    weights = {weight.name: weight for weight in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]:
        axes = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
        matrix = onnx.numpy_helper.to_array(weights[node.input[0]]).transpose(axes)
        graph.initializer.append(onnx.numpy_helper.from_array(matrix.copy(), node.output[0]))
        graph.node.remove(node)
    return written


class OnnxGraphs:
    """The graphs in a directory, run by onnxruntime."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.sessions = {
            path.stem: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in sorted(folder.glob("*.onnx"))
        }

    def __call__(self, name: str, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs of a graph. Of `inputs` those are taken that the graph has; a past that is not given is empty."""
        session = self.sessions[name]
        fed = {}
        for wanted in session.get_inputs():
            if wanted.name in inputs:
                fed[wanted.name] = inputs[wanted.name].numpy()
            else:
                _, *sizes = wanted.shape
                fed[wanted.name] = verification.nothing(len(inputs["input_ids"]), sizes).numpy()
        names = [output.name for output in session.get_outputs()]
        return {name: torch.from_numpy(out) for name, out in zip(names, session.run(None, fed), strict=True)}
