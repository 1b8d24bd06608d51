"""Every family against the Hub's own implementation, on tiny random models: numbers, gradients, decoding, directories."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from fast_subset import fast, thinned
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import CASES, Case, transformers
from hub_models import Inputs, Pair, inputs, ours, pair, parameters, saved, theirs
from hub_sizes import EOS, PAD

from qkv.io.families import FAMILIES
from qkv.io.hub.names import Names
from qkv.nn.layers.moe import Mixture
from qkv.runs.inference.run import load

every = pytest.mark.parametrize("name", parameters(CASES))
decoding = pytest.mark.parametrize("name", parameters(CASES, lambda case: case.does != "read" and case.outputs))
headed = pytest.mark.parametrize("name", thinned(parameters(CASES, lambda case: case.outputs), 2))
some = pytest.mark.parametrize("name", thinned(parameters(CASES)))


def error(a: Tensor, b: Tensor) -> float:
    """Relative L2."""
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def sides(case: Case) -> tuple[str, ...]:
    return ("right", "left") if case.does != "read" and case.places != "counted" else ("right",)


@every
@torch.no_grad()
def test_outputs_match_transformers(name: str) -> None:
    both = pair(name)
    for side in sides(both.case):
        given = inputs(both.case, side)
        real = given.mask.bool()
        assert error(ours(both, given)[real], theirs(both, given)[real]) <= 1e-5, side


@some
@torch.no_grad()
def test_outputs_in_bf16(name: str) -> None:
    """No further from the exact outputs than twice what their own bf16 is."""
    both = pair(name)
    if any(isinstance(module, Mixture) for module in both.ours.modules()):
        pytest.skip("in bf16 a router may pick another expert, and their products take rows of whole 16 bytes only")
    given = inputs(both.case)
    real = given.mask.bool()
    exact = theirs(both, given)[real]
    their_half = copy.deepcopy(both.theirs).bfloat16()
    our_half = copy.deepcopy(both.ours).bfloat16()
    allowed = 2 * error(theirs(both, given, their_half)[real], exact)
    assert error(ours(both, given, our_half)[real], exact) <= allowed


def names_of(both: Pair) -> Names:
    config = both.run.origin.config
    family = FAMILIES[config["model_type"]]
    bare = family.classes[config["architectures"][0]].bare
    return Names.of(family.table(both.ours.spec, bare), both.ours)


def labels(both: Pair, given: Inputs) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    drawn = torch.randint(0, max(both.case.labels, 2), given.ids.shape, generator=generator)
    return drawn.masked_fill(given.mask == 0, -100)


def their_loss(both: Pair, given: Inputs, wanted: Tensor) -> Tensor:
    out = theirs(both, given)
    if both.case.labels == 1:  # a yes or no
        real = wanted >= 0
        return F.binary_cross_entropy_with_logits(out.squeeze(-1)[real], wanted[real].to(out.dtype), reduction="sum")
    return F.cross_entropy(out.flatten(0, 1), wanted.flatten(), reduction="sum")


@headed
def test_the_loss_and_the_gradient_of_every_parameter(name: str, tmp_path: Path) -> None:
    both = pair(name)
    given = inputs(both.case)
    wanted = labels(both, given)
    both.theirs.zero_grad()
    both.ours.zero_grad()
    expected = their_loss(both, given, wanted)
    expected.backward()
    found = ours(both, given, labels=wanted)
    found.loss.backward()
    assert int(found.n_labels) == int((wanted >= 0).sum())
    torch.testing.assert_close(found.loss, expected.detach(), rtol=1e-5, atol=0)
    mine = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in both.ours.named_parameters()}
    largest = max(float(grad.norm()) for grad in mine.values())  # some gradients are 0 but for rounding
    expected_grads = names_of(both).to_ours(their_gradients(both, tmp_path))
    untrained = {name for name, _ in both.theirs.named_buffers()}
    for entry in names_of(both).written():
        for grad in () if untrained & set(entry.theirs) else entry.ours:
            scale = float(expected_grads[grad].norm()) + 1e-2 * largest
            assert float((mine[grad] - expected_grads[grad]).norm()) <= 2e-5 * scale, grad
    both.ours.zero_grad()


def their_gradients(both: Pair, folder: Path) -> dict[str, Tensor]:
    """Under the names that weights have in a saved file, which may be others than in memory: saved as if weights."""
    holder = copy.deepcopy(both.theirs)
    with torch.no_grad():
        for held, parameter in zip(holder.parameters(), both.theirs.parameters(), strict=True):
            held.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    holder.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


@decoding
@torch.no_grad()
def test_cached_step_by_step(name: str) -> None:
    both = pair(name)
    given = inputs(both.case, lengths=(11, 11))
    expected = theirs(both, given)
    model, ids = both.ours, given.ids
    if both.case.does == "translate":
        from qkv.core.layout import Layout

        cache = model.start(source=given.source, source_layout=Layout.from_mask(given.source_mask))
    else:
        cache = model.start(len(ids))
    steps = [model.step(ids[:, :3], cache), *(model.step(ids[:, t : t + 1], cache) for t in range(3, ids.shape[1]))]
    assert error(torch.stack(steps, 1), expected[:, 2:]) <= 1e-5


@decoding
@pytest.mark.parametrize("beams", [1, 4])
@torch.no_grad()
def test_generation_token_for_token(name: str, beams: int) -> None:
    both = pair(name)
    given = inputs(both.case, "left")
    translates = both.case.does == "translate"
    ids, mask = (given.source, given.source_mask) if translates else (given.ids, given.mask)
    expected = both.theirs.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=9,
        num_beams=beams,
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=PAD,
        **({"decoder_start_token_id": 1, "forced_eos_token_id": None} if translates else {}),
    )
    found = both.ours.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=9,
        num_beams=beams,
        eos_id=EOS,
        pad_id=PAD,
        bos_id=1 if translates else None,
    )
    assert found.tolist() == ended(expected).tolist()


def ended(rows: Tensor) -> Tensor:
    """Padding after the end: if it is token 0, their beam search repeats the end instead."""
    over = (rows == EOS).cumsum(1) - (rows == EOS).long() > 0
    return rows.masked_fill(over, PAD)


def source_of(name: str, tensors: Mapping[str, Tensor]) -> str:
    """The tensor that is saved under a name: the first bias of an untied head, which nothing adds, becomes a copy of the
    second."""
    own = f"{name.removesuffix('.bias')}.decoder.bias"
    return own if own in tensors else name


def published(case: Case, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of published files, without rates of positions, which transformers 5.23 saves as `layer.*`."""
    named = {}
    for name, tensor in tensors.items():
        for old, new in case.renamed:
            name = name.replace(old, new)
        if not (case.renamed and name.endswith("inv_freq")):
            named[name] = tensor
    return named


@some
def test_there_and_back(name: str) -> None:
    both, folder = pair(name), saved(name)
    config = json.loads((both.folder / "config.json").read_text())
    assert json.loads((folder / "config.json").read_text()) == config
    before, after = (published(both.case, load_file(path / "model.safetensors")) for path in (both.folder, folder))
    assert before.keys() == after.keys()
    for tensor in before:
        assert torch.equal(before[source_of(tensor, before)], after[tensor]), tensor
    again = load(folder, device="cpu")
    assert again.model.spec == both.ours.spec and again.generation == both.run.generation


@some
@torch.no_grad()
def test_a_directory_from_the_spec_alone_is_one_of_the_hubs(name: str, tmp_path: Path) -> None:
    both, folder = pair(name), shutil.copytree(saved(name), tmp_path / "saved")
    config = FAMILIES[both.run.origin.config["model_type"]].config(both.ours.spec)
    written = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 1, **config}
    (folder / "config.json").write_text(json.dumps(written))
    cls = getattr(transformers, config["architectures"][0])
    model, info = cls.from_pretrained(folder, output_loading_info=True, attn_implementation=both.case.attention)
    assert not any(info.values()), info
    given = inputs(both.case)
    written_tensors, kept = model.state_dict(), both.theirs.state_dict()
    assert written_tensors.keys() == kept.keys()
    assert all(torch.equal(written_tensors[name], kept[source_of(name, kept)]) for name in kept)
    # The same weights at another address may differ in the last bit: MKL's matrix–vector products depend on alignment.
    torch.testing.assert_close(theirs(both, given, model.eval()), theirs(both, given), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", fast(CASES, *{case.cls: name for name, case in CASES.items()}.values()))
def test_auto_classes_load_what_is_saved(name: str) -> None:
    both = pair(name)
    auto = transformers.AutoModel if not both.case.outputs else AUTO[both.case.does]
    if "ForPreTraining" in both.case.cls:
        auto = transformers.AutoModelForPreTraining
    if both.case.cls.endswith("EncoderModel"):  # AutoModel makes a decoder too, as it does of their own directories
        auto = getattr(transformers, both.case.cls)
    _, info = auto.from_pretrained(saved(name), output_loading_info=True)
    assert not any(info.values()), info


AUTO = {
    "continue": transformers.AutoModelForCausalLM,
    "read": transformers.AutoModelForMaskedLM,
    "translate": transformers.AutoModelForSeq2SeqLM,
}
