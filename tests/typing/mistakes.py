"""Mistakes that checkers have to find: each line that ends in `# wrong` is an error, and no other line is one."""

from __future__ import annotations

import torch

import qkv

q, k, v = torch.randn(3, 1, 512, 8, 64)
qkv.attend(q, k, v, patern=qkv.causal())  # wrong
qkv.attend(q, k, v, backend=3)  # wrong
model = qkv.build(qkv.preset("gpt2"), sed=0)  # wrong
model = qkv.build("gpt2")  # wrong
model = qkv.build(qkv.preset("gpt2"))
ids = torch.tensor([[464, 3797]])
model.generate(ids, max_new_token=8)  # wrong
model.generate(ids, max_new_tokens="8")  # wrong
run = qkv.load("runs/localise", imprts=True)  # wrong
run = qkv.load("runs/localise")
run.generate(["text"], num_beam=4)  # wrong
qkv.FeedForward(d_f=3)  # wrong
qkv.presets("gpt2")  # wrong
