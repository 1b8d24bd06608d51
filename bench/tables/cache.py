"""Caches: tokens a second at 32k tokens of context by how keys and values are kept, and what that costs in perplexity."""

from __future__ import annotations

from typing import Any

from .. import corpora
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, spread, verdict

FULL = "bf16"
KINDS: dict[str, Any] = {FULL: None, "int8": "int8", "int4": "int4"}
FASTER = {"int8": 1.6, "int4": 2.5}
WORSE = {"int8": 0.1, "int4": 1.0}  # percent of perplexity

# By name, bits and groups; contexts here are short, so little is left as it is. The default's groups are of 128.
CODED = {
    f"{name}, groups of {group}": {"kind": "quantized", "bits": bits, "group": group, "residual": 32}
    for name, bits in (("int8", 8), ("int4", 4))
    for group in (32, 128)
}
CONTEXT = 512


def cases(quick: bool) -> list[Case]:
    tokens = 256 if quick else 32768
    shapes = ((32, 32), (32, 8)) if not quick else ((4, 2),)
    made = [_step(tokens, heads, kv_heads) for heads, kv_heads in shapes]
    return made if corpora.missing(corpora.SHAKESPEARE) else [*made, _perplexity(quick)]


def _step(tokens: int, heads: int, kv_heads: int) -> Case:
    key = {"tokens": tokens, "n_heads": heads, "n_kv_heads": kv_heads, "n_layers": 2, "d_head": 128}
    contenders = (
        Contender(name, "bench.contenders.ours_caches:Step", {"cache": kind, **key}) for name, kind in KINDS.items()
    )
    return Case(key, tuple(contenders), fresh=True)


def _perplexity(quick: bool) -> Case:
    texts = corpora.shakespeare(20_000 if quick else None)
    key = {
        "what": "perplexity",
        "context": 48 if quick else CONTEXT,
        "rows": 2 if quick else 32,
        "steps": 2 if quick else 600,
    }
    sizes = {name: key[name] for name in ("context", "rows", "steps")}
    options = {"train": texts.train, "validation": texts.validation, "kinds": {"as it is": None, **CODED}, **sizes}
    return Case(key, (Contender("qkv", "bench.contenders.ours_caches:Perplexity", options),), once=True)


def render(result: Result) -> str:
    parts, lines = [], []
    for record in (record for record in result.records() if "what" not in record.key):
        key = record.key
        header = [
            f"{key['n_heads']} heads, {key['n_kv_heads']} of keys, {key['tokens']:,} tokens",
            "tokens/s",
            "cache, MiB",
        ]
        parts.append(markdown([*header, "speed ÷ bf16's"], (_row(record, name) for name in record.names)))
        lines += [
            verdict(
                f"{name} ÷ bf16, tokens/s, {key['n_kv_heads']} heads of keys", _speed(record, name), target, least=True
            )
            for name, target in FASTER.items()
            if {name, FULL} <= set(record.names)
        ]
    record = result.find(what="perplexity")
    if record is not None and record.names:
        parts.append(markdown([f"{record.key['context']} tokens", "perplexity", "change, %"], _losses(record)))
        lines += [
            verdict(f"{name}: change of perplexity", _change(record, name), WORSE[name.partition(",")[0]], " %")
            for name in CODED
        ]
    return "\n\n".join([*parts, "\n".join([*lines, *errors(result)])])


def _row(record: Record, name: str) -> list[str]:
    beside = "" if name == FULL or FULL not in record.names else spread(record.ratios(FULL, name))
    return [name, number(1e3 / record.median(name)), number(record.fact(name, "cache_mib")), beside]


def _speed(record: Record, name: str) -> float:
    return record.median(FULL) / record.median(name)


def _losses(record: Record) -> list[list[str]]:
    rows = [[name, f"{record.told('qkv', name)[0]:.4f}", f"{_change(record, name):+.3f}"] for name in CODED]
    return [["as it is", f"{record.told('qkv', 'as it is')[0]:.4f}", ""], *rows]


def _change(record: Record, name: str) -> float:
    """Percent by which perplexity is above that of keys and values as they are."""
    return 100 * (record.told("qkv", name)[0] / record.told("qkv", "as it is")[0] - 1)


TABLE = Table("cache", 5, cases, render)
