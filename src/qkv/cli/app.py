"""The commands and their order in `qkv --help`. Nothing heavy may be imported here or at the head of a command's file."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    allocator,
    catalog,
    chat,
    classify,
    consent,
    convert,
    cost,
    evaluate,
    fill,
    generate,
    predict,
    score,
    show,
    tokenizer,
    train,
    vectors,
)

app = typer.Typer(
    name="qkv",
    help="Every Transformer from one small core: train one on your data, and use it.",
    epilog="`qkv demo` trains a translator from nothing in five minutes. QKV_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"qkv {version('qkv')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    system_allocator: Annotated[
        bool,
        typer.Option("--system-allocator", help="Let the C library give memory back at once: slower, but smaller."),
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="Import parts from outside qkv: `my_package.parts` or `parts.py`."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Import what a recipe or a run names without asking.")] = False,
) -> None:
    allocator.bound_kernels()
    if not system_allocator:
        allocator.keep_pages()
    consent.set_up(context, imports or (), yes)


app.command("demo")(train.demo)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.command("translate", help=generate.translate_help)(generate.generate)
app.command("chat")(chat.chat)
app.command("score")(score.score)
app.command("embed")(score.embed)
app.command("classify")(classify.classify)
app.command("fill")(fill.fill)
app.command("predict")(predict.predict)
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(vectors.app, name="vectors")
app.command("convert")(convert.convert)
app.command("list")(catalog.list_)
app.command("show")(show.show)
app.command("cost")(cost.cost)
