"""In what families differ from transformers, in a line for `qkv list families`; docs/hub.md says more."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "esm": "contacts are not predicted; `contact_head` is kept and written back",
    "falcon": "ALiBi is added once; transformers' eager attention adds it twice",
    "gemma3_text": "`attn_logit_softcapping`, which transformers reads and never applies, is refused",
    "marian": "sinusoidal positions are computed and not saved, so transformers calls them missing",
    "ministral3": "the language model alone; directories with pictures (`mistral3`) are refused",
    "mpnet": "`relative_attention_num_buckets` other than 32, with which transformers doesn't compute, is refused",
    "mpt": "`alibi_bias_max` is used; transformers takes 8",
    "opt": "projected states (350M) for `OPTForCausalLM` alone; norms without weights (Galactica) are refused",
    "umt5": "states are scaled before a tied head only; transformers 5 scales them in any case",
    "vit_mae": "positions of the decoder are resized over the grid for other sizes of images",
}
