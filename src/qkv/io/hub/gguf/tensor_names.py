"""Tensor names of GGUF beside the names in a model's `state_dict`: one table serves all families whose layers are the same.

If llama.cpp fuses queries, keys and values, they stand one behind the other. Of several rows for one part, the first is
written and any is read.
"""

from __future__ import annotations

from ....nn.attention.multi_head import Attention
from ....nn.layers.moe import MixtureOfExperts
from ....nn.models.transformer import Transformer
from ..family import Table, at
from ..names import Row
from ..transforms import Joined, Shaped, Stacked
from .transforms import RotatedNeighbors, Shifted

LAYER, BLOCK = "blk.{i}", "decoder.blocks.{i}"
ENDS: Table = (
    Row("token_embd.weight", "decoder.embedding.weight"),
    Row("output_norm.*", "decoder.norm.*"),
    Row("output.*", "head.*"),
    Row("rope_freqs.weight", ""),
    Row("rope_factors_long.weight", ""),
    Row("rope_factors_short.weight", ""),
)
OUT = Row(f"{LAYER}.attn_output.*", f"{BLOCK}.attention.out.*")
FUSED = Row(f"{LAYER}.attn_qkv.*", f"{BLOCK}.attention.[q,k,v].*", Joined())
APART = Row(f"{LAYER}.attn_[q,k,v].*", f"{BLOCK}.attention.[q,k,v].*")
NORMS: Table = (
    Row(f"{LAYER}.attn_norm.*", f"{BLOCK}.norm.attention.*"),
    Row(f"{LAYER}.ffn_norm.*", f"{BLOCK}.norm.feedforward.*"),
)
QK_NORMS = Row(f"{LAYER}.attn_[q,k]_norm.weight", f"{BLOCK}.attention.[q,k]_norm.weight")
NORMS_AFTER: Table = (
    Row(f"{LAYER}.post_attention_norm.weight", f"{BLOCK}.norm_after.attention.weight"),
    Row(f"{LAYER}.post_ffw_norm.weight", f"{BLOCK}.norm_after.feedforward.weight"),
)
PLAIN = Row(f"{LAYER}.ffn_[up,down].*", f"{BLOCK}.feedforward.[up,down].*")
GATED = Row(f"{LAYER}.ffn_[gate,up,down].*", f"{BLOCK}.feedforward.[gate,up,down].*")
POSITIONS = Row("position_embd.weight", "decoder.position.weight")
EXPERTS: Table = (
    Row(f"{LAYER}.ffn_gate_inp.weight", f"{BLOCK}.feedforward.router.weight"),
    Row(f"{LAYER}.ffn_[gate,up,down]_exps.weight", f"{BLOCK}.feedforward.[gate,up,down].weight"),
    *(  # as the first files had them
        Row(f"{LAYER}.ffn_{n}.{{e}}.weight", f"{BLOCK}.feedforward.{n}.weight", Stacked())
        for n in ("gate", "up", "down")
    ),
    Row(f"{LAYER}.ffn_[gate,up,down]_shexp.weight", f"{BLOCK}.feedforward.shared.[gate,up,down].weight"),
    Row(f"{LAYER}.ffn_gate_inp_shexp.weight", f"{BLOCK}.feedforward.shared_gate.weight", Shaped((-1,))),
)


def _feedforward(spec: Transformer) -> Table:
    """The gated feed-forward layers: of experts or one for every token, in all layers alike."""
    assert spec.decoder is not None
    return EXPERTS if isinstance(spec.decoder.blocks[0].feedforward, MixtureOfExperts) else (GATED,)


def fused(spec: Transformer) -> Table:
    """GPT-2's kind."""
    return (*ENDS, *NORMS, FUSED, APART, OUT, PLAIN, POSITIONS)


def bloom(spec: Transformer) -> Table:
    return (Row("token_embd_norm.*", "decoder.embedding.norm.*"), *fused(spec))


def falcon(spec: Transformer) -> Table:
    """With two norms, attention's is the second there."""
    assert spec.decoder is not None
    two = not spec.decoder.blocks[0].shared_norm
    norms = (
        Row(f"{LAYER}.attn_norm{'_2' if two else ''}.*", f"{BLOCK}.norm.attention.*"),
        Row(f"{LAYER}.attn_norm.*", f"{BLOCK}.norm.feedforward.*"),
    )
    return (*ENDS, *norms, FUSED, OUT, PLAIN)


def neighbors(spec: Transformer) -> Table:
    """Llama's kind, with rotated coordinates beside each other."""
    assert spec.decoder is not None
    attention = spec.decoder.blocks[0].attention
    assert isinstance(attention, Attention)
    n_heads, n_kv_heads, _, _ = attention.widths(spec.d_model)
    return (
        *ENDS,
        *NORMS,
        Row(f"{LAYER}.attn_q.*", f"{BLOCK}.attention.q.*", RotatedNeighbors(n_heads)),
        Row(f"{LAYER}.attn_k.*", f"{BLOCK}.attention.k.*", RotatedNeighbors(n_kv_heads)),
        Row(f"{LAYER}.attn_v.*", f"{BLOCK}.attention.v.*"),
        OUT,
        *_feedforward(spec),
    )


def halves(spec: Transformer) -> Table:
    """Qwen's kind and OLMo 2, with rotated coordinates in halves as here."""
    return (*ENDS, *NORMS, *NORMS_AFTER, APART, FUSED, OUT, QK_NORMS, *_feedforward(spec))


def phi3(spec: Transformer) -> Table:
    gate_and_up = Row(f"{LAYER}.ffn_up.weight", f"{BLOCK}.feedforward.[gate,up].weight", Joined())
    down = Row(f"{LAYER}.ffn_down.weight", f"{BLOCK}.feedforward.down.weight")
    return (*ENDS, *NORMS, FUSED, APART, OUT, gate_and_up, down)


def gemma(spec: Transformer) -> Table:
    """Norms hold 1 + g."""
    return tuple(Row(row.theirs, row.ours, Shifted(1.0)) if "norm" in row.ours else row for row in halves(spec))


def bert(spec: Transformer) -> Table:
    """BERT and Nomic BERT: norms after sublayers, segments; queries, keys and values apart or fused."""
    layer, block = LAYER, "encoder.blocks.{i}"
    fused = Row(f"{layer}.attn_qkv.*", f"{block}.attention.[q,k,v].*", Joined())
    apart = Row(f"{layer}.attn_[q,k,v].*", f"{block}.attention.[q,k,v].*")
    gated = bool(getattr(at(spec, "encoder.blocks.0.feedforward"), "gated", False))
    return (
        Row("token_embd.weight", "encoder.embedding.weight"),
        Row("token_types.weight", "encoder.embedding.types"),
        Row("token_embd_norm.*", "encoder.embedding.norm.*"),
        Row("position_embd.weight", "encoder.position.weight"),
        *((fused, apart) if gated else (apart, fused)),
        Row(f"{layer}.attn_output.*", f"{block}.attention.out.*"),
        Row(f"{layer}.attn_output_norm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.ffn_[up,down].*", f"{block}.feedforward.[up,down].*"),
        Row(f"{layer}.ffn_gate.*", f"{block}.feedforward.gate.*"),
        Row(f"{layer}.layer_output_norm.*", f"{block}.norm.feedforward.*"),
    )
