"""Side-by-side measurements of qkv and what people would pick instead: `python -m bench TABLE`.

Every contender is a process of its own, in its own environment, and takes one round when it is told to, so that A B A B …
holds across libraries. Whatever the machine does meanwhile, it does to all of them; ratios are taken within a round.
"""
