"""The commands, in the order of `qkv --help`. Neither this file nor the top of a command's file may import slow modules."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    ablate,
    allocator,
    catalog,
    chat,
    classify,
    completion,
    consent,
    convert,
    cost_commands,
    doctor,
    evaluate,
    explain,
    fill,
    generate,
    look,
    predict,
    prune,
    report,
    scaling,
    score,
    show,
    tokenizer,
    train,
    vectors,
)

app = typer.Typer(
    name="qkv",
    help="Train Transformers on your data and use them.",
    epilog="`qkv demo` trains a small translator in five minutes. QKV_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"qkv {version('qkv')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            metavar="bash|zsh|fish",
            callback=completion.install_script,
            is_eager=True,
            help="Set up completion of commands, options and settings in a shell, and exit.",
        ),
    ] = None,
    print_completion: Annotated[
        str | None,
        typer.Option(
            metavar="bash|zsh|fish",
            callback=completion.print_script,
            is_eager=True,
            help="Print the script that completes them in a shell, and exit.",
        ),
    ] = None,
    system_allocator: Annotated[
        bool,
        typer.Option("--system-allocator", help="Return freed memory to the system at once: slower, but uses less."),
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module that defines parts: `my_package.parts` or `parts.py`; repeatable.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Import the modules that a recipe or a run names without asking.")
    ] = False,
) -> None:
    allocator.bound_kernels()
    if not system_allocator:
        allocator.keep_pages()
    consent.set_up(context, imports or (), yes)


app.command("demo")(train.demo)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("report")(report.report)
app.command("ablate")(ablate.ablate)
app.command("generate")(generate.generate)
app.command("translate", help=generate.translate_help)(generate.generate)
app.command("chat")(chat.chat)
app.command("score")(score.score)
app.command("embed")(score.embed)
app.command("classify")(classify.classify)
app.command("fill")(fill.fill)
app.command("predict")(predict.predict)
app.command("look")(look.look)
app.command("prune")(prune.prune)
app.add_typer(scaling.app, name="scaling")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(vectors.app, name="vectors")
app.command("convert")(convert.convert)
app.command("list")(catalog.list_)
app.command("show")(show.show)
app.command("explain")(explain.explain)
app.add_typer(cost_commands.app, name="cost")
app.command("doctor")(doctor.doctor)
