import json
import random

import numpy as np
import torch

from qkv.training.checkpoints import rng


def draw() -> tuple:
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()


def test_every_generator_continues_where_it_was_also_through_json():
    rng.seed_all(3)
    draw()
    state = json.loads(json.dumps(rng.capture()))
    wanted = [draw() for _ in range(3)]
    rng.seed_all(4)
    rng.restore(state)
    assert [draw() for _ in range(3)] == wanted


def test_preserved_leaves_no_trace_even_after_an_error():
    rng.seed_all(3)
    wanted = draw()
    rng.seed_all(3)
    try:
        with rng.preserved():
            draw()
            raise KeyError
    except KeyError:
        pass
    assert draw() == wanted


def test_the_seed_decides():
    rng.seed_all(5)
    first = draw()
    rng.seed_all(5)
    assert draw() == first
    rng.seed_all(6)
    assert draw() != first
