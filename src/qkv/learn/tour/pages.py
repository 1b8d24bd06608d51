"""Read the pages of the tour: text, cells of Python, and what each cell prints."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...core.spec import brief, meant

CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\d+)\. \[([^\]]+)\]\(([^)]+)\.md\) \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class CodeCell:
    """Code, and what it prints."""

    code: str
    output: str


@dataclass(frozen=True)
class Page:
    """A page: its number, title and what it is about, as the index says, and its file."""

    number: int
    title: str
    about: str
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def parts(self) -> list[str | CodeCell]:
        """Markdown and cells, in their order."""
        text, parts, end = self.text, list[str | CodeCell](), 0
        for match in CELL.finditer(text):
            parts += [text[end : match.start()], CodeCell(match[1], match[2] or "")]
            end = match.end()
        return [part for part in (*parts, text[end:]) if isinstance(part, CodeCell) or part.strip()]


@cache
def folder() -> Path:
    """Where the pages are: in the installed package, or in the docs of a checkout. Raises ValueError if they are
    not."""
    here = Path(__file__).parent
    for place in (here / "pages", here.parents[3] / "docs" / "tour"):
        if (place / "index.md").is_file():
            return place
    raise ValueError("the pages of the tour are not installed; install qkv from a wheel, or clone its repository")


@cache
def pages() -> tuple[Page, ...]:
    """All pages, in their order."""
    index = (folder() / "index.md").read_text(encoding="utf-8")
    return tuple(Page(int(n), title, about, folder() / f"{name}.md") for n, title, name, about in ROW.findall(index))


MEANINGS = {  # words of the field for what a page is about
    "bottleneck": "rnn lstm gru recurrent seq2seq bahdanau alignment",
    "dictionary": "kernel regression nadaraya-watson lookup",
    "attention": "self-attention softmax soft-max scaled-dot-product sdpa qkv query key value weights",
    "heads": "multihead multi-head mha gqa mqa",
    "positions": "position positional rope rotary alibi sinusoidal encoding encodings",
    "blocks": "block layer layers norm layernorm rmsnorm residual feedforward mlp ffn",
    "encoder-decoder": "encoder decoder cross cross-attention translation transformer",
    "tokens": "tokenizer tokenizers tokenization bpe subwords wordpiece unigram sentencepiece",
    "training": "train optimizer loss backprop gradient gradients adam schedule",
    "decoding": "generation generate beam beam-search sampling top-k top-p temperature greedy",
    "families": "gpt gpt2 bert t5 llama models presets",
    "quadratic": "complexity cost flops memory long-context",
    "flash": "flash-attention flashattention tiling online-softmax",
    "efficient": "linear performer linformer longformer bigbird sparse lsh reformer",
    "caches": "cache kv-cache kv paged h2o quantized",
    "experts": "moe mixture mixture-of-experts router mixtral",
    "machines": "parallel gpus gpu ranks distributed ddp fsdp zero tensor-parallel",
    "modalities": "image images vision vit audio speech video music",
    "inside": "look interpretability probing logit-lens induction patching visualize",
    "pruning": "prune sparsity compression",
    "changed": "replace modern swiglu variants history",
    "slips": "mistakes bugs pitfalls errors debugging",
}


def find(name: str) -> Page:
    """The page of a number, a name such as `03-attention`, or the part after the number. Raises ValueError."""
    for page in pages():
        if name in (str(page.number), page.name, page.name.partition("-")[2]):
            return page
    known = [page.name.partition("-")[2] for page in pages()]
    raise ValueError(
        f"the tour has no page {brief(name)}; {meant(name, known, MEANINGS)}, or give a number from 1 to {len(known)}"
    )


def run(page: Page, place: Path) -> Iterator[str]:
    """Run the cells of a page one after another in a folder, where pictures are written; yield what each prints."""
    names: dict[str, object] = {"__name__": page.name}
    for part in page.parts():
        if isinstance(part, CodeCell):
            with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(part.code, page.path.name, "exec"), names)
            yield output.getvalue()
