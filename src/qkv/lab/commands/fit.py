"""`qkv cost fit`: the largest batch, text and model for a memory, and what saves memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...cli.options import Json, RecipeOrPreset, Settings
from ...cli.say import console, echo, echo_json
from ...cli.texts import uncollected

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...nn.layers.lora import Adapter
    from ...nn.models.base import ModelSpec
    from ...training.settings import Training
    from ..costs.adapter_fit import AdapterFit
    from ..costs.fit import DecodingFit, Fit, FittingModel, Lever, TrainingFit


@uncollected()
def fit(
    name: RecipeOrPreset,
    settings: Settings = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="The memory, such as 24GB (10⁹ bytes) or 22GiB (2³⁰).")
    ] = "24GB",
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of the batch to compare by.", min=1)] = 8,
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens per row. [default: 512, or the context]", min=1)
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", help="Number of GPUs that ZeRO divides by. [default: 8]", min=1)
    ] = None,
    purpose: Annotated[
        Literal["both", "training", "decoding"], typer.Option("--for", help="What must fit into memory.")
    ] = "both",
    on: Annotated[
        Literal["gpu", "cpu"],
        typer.Option(help="Whose memory: a CPU's libraries and heap need more beside the tensors than a GPU's."),
    ] = "gpu",
    adapter: Annotated[
        Literal["lora", "qlora"] | None,
        typer.Option(help="Train only an adapter: over fp32 weights (lora), or over nf4 weights (qlora)."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what fits into memory: the largest batch, the longest text and the largest model, and what each change saves.

    Every size is counted by running a step on tensors without contents, as by `qkv cost`, or is a formula where the table
    says so: ZeRO's shares and quantized weights. Training uses AdamW in fp32, or the recipe's settings. With --adapter, it
    uses bf16, and only a few layers are counted: `qkv cost fit qwen2-7b --adapter qlora` answers within seconds.
    """
    from ...cli.show import model_of
    from ...nn.cost.fit import read_size
    from ...nn.cost.images import image_tokens
    from ..costs.fit import of_preset

    size = read_size(memory)
    name, spec, recipe = model_of(name, list(settings or ()))
    training, lora = (None, None) if recipe is None else (recipe.training, recipe.adapter)
    tokens = length or image_tokens(spec) or min(512, spec.max_positions or 512)
    if adapter is not None:
        if purpose == "decoding":
            raise ValueError(
                "an adapter changes what training takes, not what decoding takes; leave out --adapter or --for decoding"
            )
        if ranks is not None:
            raise ValueError("--adapter is about training on one GPU; leave out --ranks")
        _fit_adapter(name, spec, size, adapter, rows, tokens, training, lora, on == "gpu", json)
        return
    if not json and purpose != "decoding":
        echo("Counting the memory of training with each change; this can take a minute …", err=True)
    fits = of_preset(
        name,
        spec,
        size,
        rows=rows,
        length=tokens,
        ranks=ranks or 8,
        purpose=purpose,
        for_gpu=on == "gpu",
        training=training,
    )
    if json:
        echo_json(fits.to_dict())
    else:
        _show(fits)


def _fit_adapter(
    name: str,
    spec: ModelSpec,
    memory: int,
    adapter: str,
    rows: int,
    length: int,
    training: Training | None,
    lora: Adapter | None,
    for_gpu: bool,
    json: bool,
) -> None:
    from ...nn.layers.lora import LoRA
    from ..costs.adapter_fit import adapter_fit

    known = lora if isinstance(lora, LoRA) else None
    fits = adapter_fit(
        name, spec, memory, adapter, rows=rows, length=length, training=training, lora=known, for_gpu=for_gpu
    )
    if json:
        echo_json(fits.to_dict())
    else:
        _show_adapter(fits)


def _show_adapter(fits: AdapterFit) -> None:
    from rich.table import Table

    stored = fits.weights or "fp32"
    echo(f"{fits.name}: {fits.parameters:,} parameters, in {fits.memory / 1e9:,.4g} GB ({_size(fits.memory)})")
    best = max(fits.settings, key=lambda one: one.batch)
    rows = f"{best.batch:,} rows" if best.batch > 1 else "one row"
    echo(f"\nLoRA of rank {fits.rank} over frozen {stored} weights fits: {rows} of {fits.shape.length:,} tokens.")
    echo(f"Training {fits.shape} in {fits.precision} takes:\n")
    table = Table(box=None, pad_edge=False)
    for header in ("recompute", "memory", "weights", "adapter", "activations", "rows at most"):
        table.add_column(header, justify="left" if header == "recompute" else "right", no_wrap=True)
    for one in fits.settings:
        memory = one.memory
        parts = (memory.peak, memory.weights, memory.gradients + memory.optimizer, memory.activations)
        table.add_row(one.recompute, *map(_size, parts), f"{one.batch:,}")
    console().print(table, highlight=False)
    quantized = f", weights: {fits.weights}" if fits.weights else ""
    echo(
        "\nCounted of a few layers; `adapter` is its gradients and optimizer states. To train it, on chats for example:"
    )
    echo(
        f"  qkv train chat 'model={{directory: DIR{quantized}}}' 'adapter={{kind: lora, rank: {fits.rank}}}' "
        f"training.precision={fits.precision} training.recompute={best.recompute}"
    )


def _show(fits: Fit) -> None:
    out = console()
    size = f"{fits.memory / 1e9:,.4g} GB ({_size(fits.memory)})"
    out.print(f"{fits.name}: {fits.parameters:,} parameters, in {size}", highlight=False, markup=False)
    for misfit in fits.misfits:
        echo(f"\n{misfit[0].upper()}{misfit[1:]}.")
    if fits.training is not None:
        _show_training(out, fits.training)
    if fits.decoding is not None:
        _show_decoding(out, fits.decoding)


def _show_training(out: Console, fits: TrainingFit) -> None:
    base, batch = fits.levers[0], "a row" if fits.rows == 1 else f"{fits.rows:,} rows"
    lines = [
        f"\nTraining fits {base.batch:,} rows of {fits.shape.length:,} tokens.",
        f"  rows       of {fits.tokens:,} tokens at most, for {batch}",
        f"  depth      {_model(fits.deepest)}",
        f"  width      {_model(fits.widest)}",
    ]
    for line in lines:
        echo(line)
    echo()
    out.print(_table(f"training {fits.shape}", fits.levers, texts=False))


def _show_decoding(out: Console, fits: DecodingFit) -> None:
    base = fits.levers[0]
    echo(
        f"\nDecoding fits {base.batch:,} rows of {fits.shape.length:,} tokens; the weights take {_size(fits.weights)}."
    )
    read = f"a source of {fits.shape.source:,}" if fits.shape.source else f"a prompt of {fits.shape.length:,}"
    echo(f"Of each row, {_size(fits.prompt)} are needed for a moment only, while it reads {read} tokens at once.\n")
    out.print(_table(f"decoding {fits.shape}", fits.levers, texts=True))


def _model(model: FittingModel | None) -> str:
    if model is None:
        return "not a model that can be scaled"
    return f"{model.n_layers:,} layers of width {model.d_model:,} at most: {model.parameters:,} parameters"


def _table(title: str, levers: list[Lever], texts: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for header in ("memory", "largest batch", *(["longest rows"] if texts else []), ""):
        table.add_column(header, justify="right")
    for lever in levers:
        batch = "any" if lever.batch is None else f"{lever.batch:,}"
        longest = [f"{lever.tokens:,}"] if texts and lever.tokens is not None else []
        note = lever.basis if lever.basis == "formula" else ""
        table.add_row(lever.name, _size(lever.bytes), batch, *longest, note)
    return table


def _size(size: int) -> str:
    """Format bytes: GiB, MiB from 10 MiB on, or KiB."""
    if size >= 2**30:
        return f"{size / 2**30:,.2f} GiB"
    return f"{size / 2**20:,.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**10:,.0f} KiB"
