"""Side-by-side measurements of qkv and what people would pick instead: `python -m bench TABLE`.

Every contender is a separate process, in its own environment, and takes one round when it is told to, so A B A B …
holds across libraries. Whatever the machine does meanwhile, it does to all of them; ratios are taken within a round.
"""
