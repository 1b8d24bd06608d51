"""What `auto` costs beside the best backend, over lengths, widths and precisions, for dense and causal attention."""

from __future__ import annotations

from itertools import product

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import markdown, number, verdict

ROW = "grid"
LENGTHS = (128, 512, 2048, 8192, 32768)
_LONG = 8192  # tokens from which forward is enough to see what is chosen, and the weights of `reference` are too many
_SHORT = 2048  # tokens up to which `reference` is among the contenders


def grid(quick: bool) -> list[Case]:
    lengths = (64,) if quick else LENGTHS
    shapes = product(lengths, (64, 128), ("fp32", "bf16"), ("full", "causal"), (False, True))
    return [_case(*shape) for shape in shapes if not (shape[0] >= _LONG and shape[-1])]


def _case(tokens: int, width: int, precision: str, pattern: str, backward: bool) -> Case:
    options = {"pattern": pattern, "tokens": tokens, "width": width, "precision": precision, "backward": backward}
    names = ("auto", "sdpa", "tiled", *(["reference"] if tokens <= _SHORT else []))
    what = "bench.contenders.ours:Attention"
    contenders = (Contender(name, what, {"backend": name, **options}, keep_pages=True) for name in names)
    return Case({"row": ROW, **options}, tuple(contenders))


def share(record: Record) -> tuple[float, str]:
    """Best backend's time by that of `auto`, the median over rounds, and which it was."""
    best = record.fastest("auto")
    assert best is not None
    ratios = sorted(record.ratios(best, "auto"))
    return ratios[len(ratios) // 2], best


def _over_fused(records: list[Record], backward: bool) -> str:
    """How much faster `auto` is in bf16 than PyTorch's fused function, at the length with the smallest advantage."""
    chosen = [
        record
        for record in records
        if record.key["precision"] == "bf16" and record.key["backward"] is backward and record.key["tokens"] >= _SHORT
    ]
    if not chosen:
        return ""
    medians = [sorted(record.ratios("sdpa", "auto")) for record in chosen]
    least = min(ratios[len(ratios) // 2] for ratios in medians)
    how = "both ways" if backward else "forward"
    return verdict(
        f"PyTorch's fused function ÷ auto, bf16, {how}, {_SHORT:,} tokens and more, the least", least, 1.4, least=True
    )


def render_grid(result: Result) -> str:
    records = [record for record in result.records(row=ROW) if "auto" in record.names and len(record.names) > 1]
    if not records:
        return ""
    rows, least = [], min(share(record)[0] for record in records)
    for record in records:
        key, (value, best) = record.key, share(record)
        what = f"{key['tokens']} {key['pattern']}, D {key['width']}, {key['precision']}"
        direction = "both ways" if key["backward"] else "forward"
        rows.append([f"{what}, {direction}", number(record.median("auto")), best, f"{value:.2f}"])
    table = markdown(["Dense and causal", "auto, ms", "best", "best ÷ auto"], rows)
    said = [verdict("best ÷ auto, the least of all shapes", least, 0.97, least=True)]
    said += [line for line in (_over_fused(records, False), _over_fused(records, True)) if line]
    return f"{table}\n\n" + "\n".join(said)
