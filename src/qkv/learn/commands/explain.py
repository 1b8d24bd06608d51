"""`qkv explain`: one computation with real numbers, step by step, in the terminal or on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.options import Device, Json, Overwrite
from ...cli.say import console, echo, echo_json
from ...cli.texts import small_english

if TYPE_CHECKING:
    from ..concepts import Concept
    from ..explain.explanation import Explanation


def _names(incomplete: str) -> list[str]:
    from ..explain.registry import EXPLANATIONS

    return [name for name in EXPLANATIONS if name.startswith(incomplete)]


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="attention, multihead, mask, cross, decoder-step, bahdanau, position, bpe, beam, layernorm, flash, "
            "kv-cache, moe, lora or backprop, or any term of a lecture, such as teacher forcing. Without it, a list.",
            autocompletion=_names,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Use the numbers of a trained run, or a model in the Hub's format, for --text. [default: small-english, "
            "which comes with qkv]",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A text whose numbers are shown. [default: a worked example]"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The output of an encoder–decoder. [default: the run's own]"),
    ] = None,
    layer: Annotated[int | None, typer.Option(metavar="N", help="The layer, from 0. [default: 0]")] = None,
    head: Annotated[int | None, typer.Option(metavar="N", help="The attention head, from 0. [default: 0]")] = None,
    token: Annotated[
        int | None, typer.Option(metavar="N", help="The token that is followed, from 0. [default: the last]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page that needs no network instead.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Explain one computation step by step, with the numbers of a worked example or of a model that reads your text; or show
    where a term of a lecture is in qkv."""
    chosen: dict[str, object] = {"--text": text, "--target": target, "--layer": layer, "--head": head, "--token": token}
    if not words:
        given = {"--run": run, **chosen, "--out": out, "--overwrite": overwrite or None}
        useless = [option for option, value in given.items() if value is not None]
        if useless:
            raise ValueError(f"{useless[0]} needs the name of what to explain, such as `qkv explain attention`")
        _list(json)
        return
    _check(run, chosen, out, overwrite, json)
    name, concept = _meant(" ".join(words))
    if concept is not None and not concept.explanation and text is None and out is None:
        _place(concept, json)
        return
    explanation = _explained(name, run, text, target, layer, head, token, device)
    if json:
        echo_json(explanation.to_dict())
    elif out is not None:
        echo(f"The explanation is in {explanation.save(out)}; open it in a browser.")
    else:
        from ..explain.terminal import show

        show(explanation, console())


def _meant(word: str) -> tuple[str, Concept | None]:
    """The word, and the concept that it means if it is not the name of an explanation; says so of one that is explained."""
    from ..concepts import find
    from ..explain.registry import EXPLANATIONS

    concept = None if word in EXPLANATIONS else find(word)
    if concept is not None and concept.explanation:
        places = "; ".join(f"{what}: {place}" for what, place in concept.places.items())
        echo(f"{word}: {concept.title}; {places}", err=True)
    return word, concept


def _place(concept: Concept, json: bool) -> None:
    """Print where a concept is that has no explanation."""
    if json:
        echo_json({"concept": concept.title, "section": concept.section, **concept.places})
        return
    echo(f"{concept.title} ({', '.join(concept.words)})")
    for what, place in concept.places.items():
        echo(f"  {what:<7} {place}")


def _explained(
    name: str,
    run: str | None,
    text: str | None,
    target: str | None,
    layer: int | None,
    head: int | None,
    token: int | None,
    device: str,
) -> Explanation:
    from ..explain import registry

    name = registry.resolved(name)
    if text is None:
        return registry.explain(name)
    from ...cli.texts import note_files
    from ...runs.inference.run import load
    from ..explain.of_run import explain

    note_files([text])
    loaded = load(run or small_english(), device=device)
    return explain(name, loaded, text, target, layer=layer, head=head, token=token)


def _check(run: str | None, chosen: dict[str, object], out: Path | None, overwrite: bool, json: bool) -> None:
    """Raise ValueError for options that don't go together."""
    given = [option for option, value in chosen.items() if value is not None]
    if (run is not None or given) and not str(chosen["--text"] or "").strip():
        option = "--run" if run is not None else given[0]
        raise ValueError(f"{option} needs the text whose numbers are shown; give it as --text TEXT")
    from ...io.directories.layout import claim_page

    if out is not None and json:
        raise ValueError("--out writes a page and --json prints JSON; give one of them")
    if out is not None and (out.suffix != ".html" or out.is_dir()):
        raise ValueError(f"--out is a file that ends in .html, not {out}")
    claim_page(out, overwrite)


def _list(json: bool) -> None:
    from ..explain.registry import EXPLANATIONS

    if json:
        echo_json({name: entry.about for name, entry in EXPLANATIONS.items()})
        return
    width = max(map(len, EXPLANATIONS))
    for name, entry in EXPLANATIONS.items():
        echo(f"{name:<{width}}  {entry.about}")
    echo(
        "\nOther words of lectures work too: `qkv explain teacher forcing` says where it is. docs/lectures.md lists them."
    )
