"""The usual calls of a user's script, with the types that checkers have to infer. Only `tests/test_typing.py` reads it."""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor

import qkv
from qkv.nn.models.recurrent.model import Recurrent
from qkv.nn.models.transformer import TransformerModel

q, k, v = torch.randn(3, 1, 512, 8, 64)
assert_type(qkv.attend(q, k, v, pattern=qkv.causal() & (qkv.window(64) | qkv.sinks(4))), Tensor)
assert_type(qkv.attend(q, k, v, return_lse=True), tuple[Tensor, Tensor])
out, lse = qkv.attend(q, k, v, layout=qkv.Layout.full(512), return_lse=True)
assert_type(qkv.merge(out, lse, out, lse), tuple[Tensor, Tensor])

spec = qkv.preset("gpt2", n_layers=2)
assert_type(spec, qkv.Transformer)
assert_type(spec.replace({"decoder.position": qkv.ALiBi()}), qkv.Transformer)
assert_type(spec.n_parameters, int)
assert_type(qkv.Transformer.from_json(spec.to_json()), qkv.Transformer)
smaller = qkv.Transformer(
    vocab_size=100,
    d_model=32,
    decoder=qkv.Stack(
        blocks=(qkv.Block(attention=qkv.Attention(n_heads=4), feedforward=qkv.FeedForward(d_ff=64)),) * 2,
        position=qkv.Rotary(base=10_000.0),
    ),
)

model = qkv.build(spec, seed=0)
trained: TransformerModel = model
ids = torch.tensor([[464, 3797]])
assert_type(model.generate(ids, max_new_tokens=8, temperature=0.8, top_p=0.9), Tensor)
assert_type(model.spec, qkv.Transformer)
model.save("model", "qkv")

run = qkv.load("runs/localise", device="cpu")
assert_type(run, qkv.Run)
for text in run.generate(["<de> 3 days ago"], num_beams=4):
    print(text)
assert_type(run.generate(["<de> 3 days ago"], num_samples=2, top_k=5), list[str] | list[list[str]])
assert_type(run.generate("<de> 3 days ago"), str)
assert_type(run.generate(["<de> 3 days ago"])[0], str)
assert_type(qkv.preset("rnnsearch"), Recurrent)
recordings = ["a.wav", "b.wav"]
assert_type(run.transcribe(recordings)[0].text, str)
assert_type(run.transcribe("a.wav", words=True).words[0].start, float)
assert_type(run.embed(images="a.png"), Tensor)
assert_type(run.embed(images=["a.png"]), list[Tensor])
settings: qkv.Generation = run.settings(max_new_tokens=3)
recipe = qkv.Recipe.load("recipe.yaml")


class EveryNth(qkv.Pattern, kind="every-nth-typed"):
    """A pattern of a user's own."""

    step: int = 2


print(EveryNth(step=3) & qkv.causal())
