"""`divided`: divide a model over the axes of a mesh that divide it: pipeline, tensor, context and expert."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import nn

from ....nn.cost.plan.rules import ContextAttention, check_media, check_tokens
from ....nn.models.block import BlockModule
from ....nn.models.joint import JointEmbedding
from ....nn.models.stack import StackModule
from ..mesh import Mesh
from ..scale import Scale
from .division import Division
from .experts import divide_experts
from .stages import divide_layers
from .tensor import divide_model
from .tokens import DividedSublayer, DividedTokens


def divided(model: nn.Module, mesh: Mesh, scale: Scale) -> Division:
    """Divide a model in place. All ranks give the same whole model.

    Raises ValueError if it can't be divided so.
    """
    joint = any(isinstance(module, JointEmbedding) for module in model.modules())
    check_media(mesh.size("tensor"), mesh.size("context"), mesh.size("pipeline"), joint)
    division = Division(model, mesh)
    if mesh.size("expert") > 1:
        divide_experts(model, mesh, division)
    last: Mapping[nn.Module, DividedSublayer] = {}
    if mesh.size("tensor") > 1:
        last = divide_model(model, mesh, division)
    if mesh.size("tensor", "context") > 1:
        _divide_tokens(model, mesh, division, scale.context_attention, last)
    if mesh.size("pipeline") > 1:
        divide_layers(model, mesh, division, scale.pipeline_schedule)
    return division


def _divide_tokens(
    model: nn.Module,
    mesh: Mesh,
    division: Division,
    method: ContextAttention,
    last: Mapping[nn.Module, DividedSublayer],
) -> None:
    stacks = [module for module in model.modules() if isinstance(module, StackModule)]
    drops = any(isinstance(module, BlockModule) and module.drop_path for module in model.modules())
    check_tokens(mesh.size("tensor"), mesh.size("context"), type(model).__name__, bool(stacks), drops)
    begin = partial(DividedTokens, mesh.group("context"), mesh.group("tensor"), method, last)
    for stack in stacks:
        division.switch(stack, "begin_split", begin)
