import torch
from torch import nn
from train_stand_in import Tiny

from qkv.training.optimizers import AdamW, AdamW8bit, adamw_8bit


def bytes_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in optimizer.state[parameter].values())


def test_two_bytes_a_parameter_instead_of_eight():
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2048))
    packed, plain = AdamW8bit().build(model), AdamW().build(model)
    for layer in model:
        size = layer.weight.numel()
        assert bytes_of(plain, layer.weight) == 8 * size + 4
        assert bytes_of(packed, layer.weight) == 2 * size + 8 * size // 256 + 4 < 2.04 * size
        assert bytes_of(packed, layer.bias) == bytes_of(plain, layer.bias)


def test_small_parameters_and_embeddings_stay_in_float32():
    model = Tiny()
    kinds = {
        name: AdamW8bit(min_size=64).build(model).state[p]["exp_avg"].dtype for name, p in model.named_parameters()
    }
    assert kinds == {**dict.fromkeys(kinds, torch.float32), "layer.weight": torch.uint8}
    both = AdamW8bit(min_size=64, embeddings=True).build(model)
    assert both.state[model.embedding.weight]["exp_avg_sq"].dtype == torch.uint8


def test_steps_are_adamws_but_for_the_packing():
    torch.manual_seed(0)
    model, other = nn.Linear(50, 40, bias=False), nn.Linear(50, 40, bias=False)
    other.load_state_dict(model.state_dict())
    start = model.weight.detach().clone()
    packed, plain = AdamW8bit(min_size=0, weight_decay=0.1).build(model), AdamW(weight_decay=0.1).build(other)
    direction = torch.randn(40, 50)
    for _ in range(50):
        model.weight.grad = direction + torch.randn(40, 50)
        other.weight.grad = model.weight.grad.clone()
        packed.step()
        plain.step()
        if _ == 0:  # both moments begin at zero, which is exact
            torch.testing.assert_close(model.weight, other.weight, rtol=1e-5, atol=1e-7)
    assert (model.weight - other.weight).norm() < 0.03 * (other.weight - start).norm()


def test_unpacking_by_chunks_is_unpacking_at_once(monkeypatch):
    def moved(chunk: int) -> torch.Tensor:
        monkeypatch.setitem(adamw_8bit.CHUNKS, "cpu", chunk)
        torch.manual_seed(0)
        model = nn.Linear(50, 41, bias=False)
        optimizer = AdamW8bit(min_size=0, block=16).build(model)
        for _ in range(3):
            model.weight.grad = torch.randn(41, 50)
            optimizer.step()
        return model.weight.detach()

    assert torch.equal(moved(100), moved(10_000))


def test_gradients_of_very_different_sizes_in_one_block_make_no_leaps():
    """A second moment that is packed to 0 would divide a first moment that isn't."""
    torch.manual_seed(0)
    model = nn.Linear(64, 16, bias=False)
    optimizer = AdamW8bit(lr=1e-3, min_size=0, weight_decay=0.0).build(model)
    sizes = 10 ** torch.empty(16, 64).uniform_(-6, 0)
    for _ in range(50):
        before = model.weight.detach().clone()
        model.weight.grad = sizes * torch.randn(16, 64)
        optimizer.step()
        assert (model.weight - before).abs().max() < 10 * 1e-3
