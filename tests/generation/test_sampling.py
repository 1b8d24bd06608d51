"""Random draws: the right distribution, no impossible token, and one stream per row."""

from __future__ import annotations

import torch

from qkv.generation import generate, row_seed
from qkv.generation.sampling import BLOCK, Uniforms, draw

CPU = torch.device("cpu")


def test_draw_follows_the_distribution() -> None:
    probs = torch.tensor([0.5, 0.0, 0.3, 0.2])
    uniform = (torch.arange(10_000, dtype=torch.float64)[:, None] + 0.5) / 10_000
    counts = draw(probs.log().expand(10_000, 4), uniform).bincount(minlength=4)
    assert counts.tolist() == [5000, 0, 3000, 2000]


def test_draw_never_takes_a_token_of_probability_zero() -> None:
    logits = torch.full((3, 6), -torch.inf)
    logits[:, 2] = 1.0
    edges = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    assert draw(logits, edges).tolist() == [2, 2, 2]
    logits[:, 4] = 1.0
    assert draw(logits, edges).tolist() == [2, 4, 4]


def test_a_stream_belongs_to_its_row() -> None:
    alone = Uniforms([7], CPU)
    together = Uniforms([3, 7, 5], CPU)
    mine = [float(alone.draw()) for _ in range(2 * BLOCK + 5)]
    theirs = []
    for step in range(2 * BLOCK + 5):
        if step == 10:
            together.keep([1, 2])
        theirs.append(float(together.draw()[1 if step < 10 else 0]))
    assert mine == theirs
    assert len(set(mine)) == len(mine)
    assert 0 <= min(mine) < max(mine) < 1


def test_row_seeds_differ() -> None:
    seeds = {row_seed(seed, row) for seed in range(20) for row in range(20)}
    assert len(seeds) == 400


def test_samples_have_the_models_frequencies(fixed) -> None:
    model = fixed([[0.6, 0.3, 0.1]] * 3)
    out = generate(model, [[0]], num_samples=3000, max_new_tokens=1, seed=0)
    frequency = torch.tensor([s[0] for s in out.sequences[0]]).bincount(minlength=3) / 3000
    assert torch.allclose(frequency, torch.tensor([0.6, 0.3, 0.1]), atol=0.03)


def test_a_seed_repeats_and_another_differs(table) -> None:
    model = table(40)
    one, same, other = (
        generate(model, [[3]], temperature=1.0, seed=seed, max_new_tokens=20).best for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_without_a_seed_torchs_generator_decides(table) -> None:
    model = table(40)

    def sample() -> list[list[int]]:
        return generate(model, [[3]], do_sample=True, max_new_tokens=20).best

    torch.manual_seed(5)
    first, second = sample(), sample()
    torch.manual_seed(5)
    assert sample() == first != second


def test_a_sample_does_not_depend_on_its_batch(tiny) -> None:
    model = tiny()
    prompts = [[4, 5, 6, 7], [8], [9, 10]]
    settings = {"temperature": 1.2, "top_p": 0.95, "max_new_tokens": 30, "eos_id": 2, "num_samples": 3}
    together = generate(model, prompts, seeds=[11, 12, 13], **settings)
    assert len({tuple(s) for row in together.sequences for s in row}) == 9
    for prompt, seed, expected in zip(prompts, [11, 12, 13], together.sequences, strict=True):
        assert generate(model, [prompt], seeds=[seed], **settings).sequences[0] == expected
    turned = generate(model, prompts[::-1], seeds=[13, 12, 11], **settings)
    assert turned.sequences == together.sequences[::-1]
