"""The commands, in the order of `qkv --help`. Each is imported when it is called; none imports slow modules at its top."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from . import allocator, completion, consent, waiting

MARKUP: Any = "markdown"
QKV = Path(__file__).parents[1]

# Where the function, or the group of subcommands, of each command is: a module of this package and a name in it.
OWN = {
    "Train": {
        "demo": ("train", "demo"),
        "train": ("train", "train"),
        "eval": ("evaluate", "evaluate"),
        "report": ("report", "report"),
        "tokenizer": ("tokenizer", "app"),
        "vectors": ("vectors", "app"),
    },
    "Use": {
        "predict": ("predict", "predict"),
        "classify": ("classify", "classify"),
        "transcribe": ("transcribe", "transcribe"),
        "generate": ("generate", "generate"),
        "translate": ("generate", "generate"),
        "chat": ("chat", "chat"),
        "fill": ("fill", "fill"),
        "embed": ("score", "embed"),
        "score": ("score", "score"),
        "serve": ("serve", "serve"),
    },
    "Look inside": {
        "look": ("look", "look"),
        "show": ("show", "show"),
        "list": ("catalog", "list_"),
    },
    "Shrink and export": {
        "convert": ("convert", "convert"),
        "push": ("push", "push"),
    },
}

# Packages above this one register their commands: each has a package `commands` with a table `GROUPS` like `OWN`.
ABOVE = [import_module(f"qkv.{path.parts[-3]}.commands") for path in sorted(QKV.glob("*/commands/__init__.py"))]


def _groups() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the module and function of every command, grouped as in `qkv --help`."""
    groups: dict[str, dict[str, tuple[str, str]]] = {}
    for package, table in [(__package__, OWN), *((above.__name__, above.GROUPS) for above in ABOVE)]:
        for title, places in table.items():
            found = {name: (f"{package}.{module}", function) for name, (module, function) in places.items()}
            groups.setdefault(title, {}).update(found)
    return groups


GROUPS = _groups()
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}

# What a name means that is no command, in other programs or in plain words, and what does it here.
MEANINGS = {
    "finetune finetuning fine-tune sft peft lora qlora adapt instruct": "`qkv train RECIPE model=DIRECTORY` trains a model "
    "further; adapter=lora trains a few parameters of it",
    "fit trainer training pretrain clm mlm learn start new init begin": "`qkv train FILE` guesses a recipe for your "
    "data, and `qkv list recipes` names all of them",
    "resume continue restart": "`qkv train RECIPE --resume` continues a run",
    "test evaluate evaluation validate metrics accuracy bleu rouge wer f1": "`qkv eval RUN` evaluates a run",
    "benchmark bench timing throughput": "`qkv generate RUN TEXT --verbose` measures tokens/s, `qkv cost predict "
    "NAME` predicts costs, and `qkv eval RUN` evaluates a run",
    "run pipeline cli main": "`qkv generate RUN TEXT` continues a text, `qkv chat RUN` answers messages, and "
    "`qkv predict RUN INPUT` does what a run was trained for",
    "dpo ppo grpo orpo kto rlhf preference": "qkv has no training on preferences; `qkv train chat model=DIRECTORY` "
    "fine-tunes a model on conversations",
    "similarity rerank reranker rank sts": "`qkv predict RUN FILE --out FILE` scores pairs of texts with a run of "
    "similarity, and `qkv embed RUN TEXT` gives vectors to compare",
    "launch torchrun accelerate distributed ddp fsdp deepspeed": "`qkv train RECIPE --nproc N` trains with several "
    "processes, and docs/scale.md shows torchrun and Slurm",
    "logs log history curves tensorboard wandb": "`qkv report RUN` writes a run's curves and tables as report.html",
    "infer inference apply use predict-file batch": "`qkv predict RUN FILE --out FILE` predicts, and "
    "`qkv generate RUN TEXT` continues texts",
    "nbest n-best beam sample sampling complete completion continue-text": "`qkv generate RUN TEXT --num-beams N "
    "--num-samples N --scores` gives several outputs with their scores",
    "tag ner label sentiment answer qa detect segment caption forecast": "`qkv predict RUN INPUT` does what the "
    "run was trained for",
    "asr stt speech speech-to-text subtitles subtitle captions whisper listen recognize": "`qkv transcribe RUN FILE` writes "
    "what is said in a sound, and `--srt` subtitles",
    "summarize summarise paraphrase": "`qkv generate RUN TEXT` writes what an encoder–decoder was trained to write",
    "ask talk dialog converse shell repl interactive": "`qkv chat RUN` answers messages",
    "perplexity ppl loglikelihood logprob logprobs": "`qkv score RUN TEXT` gives log-likelihoods and perplexity",
    "encode vectorize embedding embeddings features": "`qkv embed RUN TEXT` gives vectors",
    "mask unmask": "`qkv fill RUN TEXT` fills in masks",
    "export onnx gguf convert-hf-to-gguf torchscript torch-export save": "`qkv convert RUN OUT --to onnx` writes a "
    "run for other programs, and so do gguf, torch-export and hub",
    "merge merge-adapter merge-and-unload fold unload": "the run of an adapter has it merged into its weights, and "
    "`qkv convert RUN OUT --to hub` writes them",
    "push-to-hub upload publish share": "`qkv push RUN owner/name` uploads a run to the Hub",
    "download pull fetch get": "a model of the Hub is downloaded when its name is used: `qkv generate owner/name TEXT`",
    "server api deploy host http": "`qkv serve RUN` answers HTTP requests; docs/serving.md names other servers",
    "info inspect describe summary config params": "`qkv show NAME` shows a recipe, a preset or a model",
    "plot visualize visualise viz attention heads heatmap attend": "`qkv look RUN TEXT` shows attention, and "
    "`qkv report RUN` the curves of training",
    "compare diff versus leaderboard": "`qkv report RUN RUN --out FILE.html` compares runs, and `qkv ablate RECIPE` trains "
    "variants to compare",
    "sweep hpo search optimize grid optuna": "`qkv tune RECIPE` searches settings, and `qkv ablate RECIPE` compares them",
    "profile estimate memory flops speed size plan": "`qkv cost predict RECIPE` predicts memory, FLOPs and time",
    "compress shrink sparsify distill": "`qkv quantize RUN` and `qkv prune RUN` make a run smaller",
    "int8 int4 nf4 gptq awq imatrix quantise": "`qkv quantize RUN --weights int4` rounds weights",
    "tokenize tokenise vocab bpe detokenize": "`qkv tokenizer` trains and shows tokenizers",
    "models recipes presets ls datasets tasks": "`qkv list recipes` and `qkv list presets` name what there is",
    "check env environment install setup version info-system": "`qkv doctor` checks the installation",
    "tutorial course teach lesson docs": "`qkv tour` teaches, and `qkv explain NAME` shows a computation",
    "data dataset prepare preprocess": "`qkv train FILE` shows what it sees in your data before it trains, and "
    "`qkv show RECIPE --data` shows a batch",
    "help": "`qkv --help` lists the commands",
}

# The same for the commands of a group.
WITHIN: dict[str, dict[str, str]] = {
    "tokenizer": {
        "fit learn build create new make": "`qkv tokenizer train FILES` trains one",
        "encode tokenize tokenise split decode test try apply ids": "`qkv tokenizer show DIR WORD` shows the tokens "
        "of a text",
        "inspect describe summary stats vocab print": "`qkv tokenizer info DIR` describes one",
        "diff versus fertility coverage unknown oov evaluate": "`qkv tokenizer compare FILE TOKENIZER...` compares them "
        "on a text",
        "export save import push": "`qkv tokenizer convert DIR DIR` writes one for other libraries",
    },
    "vectors": {
        "fit learn build create": "`qkv vectors train TEXT` trains vectors",
        "similar most-similar neighbors neighbours closest": "`qkv vectors nearest FILE WORD` lists the nearest words",
        "analogies": "`qkv vectors analogy` solves analogies",
        "oov missing unknown check": "`qkv vectors coverage FILE DIR` tells which words have a vector",
        "export save import": "`qkv vectors convert` writes another format",
    },
    **{name: meanings for above in ABOVE for name, meanings in above.WITHIN.items()},
}


def meaning(name: str, meanings: dict[str, str] = MEANINGS) -> str | None:
    """What does what a name means that is no command, however it is spelled; None if that is not known."""
    plain = name.lower().replace("_", "-").removesuffix(".py").removeprefix("llama-").removeprefix("run-")
    return next((advice for names, advice in meanings.items() if {name.lower(), plain} & set(names.split())), None)


class Once(TyperCommand):
    """A command that also accepts `--max_steps` for `--max-steps`, and options of other libraries that mean the same.

    It warns if an option that is not repeatable is given more than once. The last value is used.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = self._in_ours(ctx, self._with_dashes(args))
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            for option, times in Counter(order).items():
                flag = getattr(option, "is_flag", False) and not option.secondary_opts
                if times > 1 and not (getattr(option, "multiple", False) or flag):
                    names = "/".join((*option.opts, *option.secondary_opts))
                    often = "twice" if times == 2 else f"{times} times"
                    warnings.warn(f"{names} is given {often}; the last value is used", stacklevel=2)
        return super().parse_args(ctx, args)

    def _with_dashes(self, args: list[str]) -> list[str]:
        known = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}

        def spelled(arg: str) -> str:
            name, equals, value = arg.partition("=")
            dashed = name.replace("_", "-")
            return dashed + equals + value if name.startswith("--") and dashed in known else arg

        end = args.index("--") if "--" in args else len(args)
        return [*map(spelled, args[:end]), *args[end:]]

    def _in_ours(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments by qkv's names: `--num-samples 3` for `--num-return-sequences 3`."""
        known = {name for option in self.params for name in (*option.opts, *option.secondary_opts)}
        end = args.index("--") if "--" in args else len(args)
        given = [arg.partition("=") for arg in args[:end]]
        unknown = {name for name, _, _ in given if name.startswith("--") and name not in known}
        if not unknown:
            return args
        from ..core.synonyms import both, option_for

        ours = {name: found for name in unknown if (found := option_for(name, known)) is not None}
        names: dict[str, str] = {}
        for name, _, _ in given:
            if (other := names.setdefault(ours.get(name, name), name)) != name:
                ctx.fail(both(other, name, ours.get(name, name)))
        return [*(ours.get(name, name) + equals + value for name, equals, value in given), *args[end:]]


class Commands(TyperGroup):
    """The commands of `COMMANDS`; the module of one is imported when it is asked for."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module, name = COMMANDS[cmd_name]
            imported = import_module(module)
            found = getattr(imported, name)
            if not isinstance(found, typer.Typer):
                function, found = found, typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
                found.command(cmd_name, help=getattr(imported, f"{cmd_name}_help", None))(function)
            for registered in found.registered_commands:
                registered.cls = Once
            command = typer.main.get_command(found)
            assert isinstance(command, TyperCommand | TyperGroup)
            command.name = cmd_name
            command.rich_help_panel = next(title for title, commands in GROUPS.items() if cmd_name in commands)
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and (advice := meaning(args[0])) is not None and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {args[0]!r}: {advice}")
        inner = args[1] if len(args) > 1 else ""
        advice = None if ctx.resilient_parsing else meaning(inner, WITHIN.get(args[0], {}))
        if advice is not None and not Path(inner).exists():
            ctx.fail(f"there is no command '{args[0]} {inner}': {advice}")
        if args[0] not in COMMANDS:  # the message names the nearest of the commands that are imported
            for name in COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="qkv",
    cls=Commands,
    help="Train Transformers on your data and use them.",
    epilog="`qkv demo` trains a small translator in five minutes. QKV_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
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
    if "WORLD_SIZE" in os.environ and not os.environ.get("QKV_DEBUG"):
        # A connection that fails is one sentence (`parallel`), without the C++ stack traces that PyTorch logs.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    allocator.bound_kernels()
    waiting.sleep_where_cores_are_shared(context.invoked_subcommand)
    if not system_allocator:
        allocator.keep_pages()
    consent.set_up(context, imports or (), yes)
