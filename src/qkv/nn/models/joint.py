"""Joint sequences: tokens and media in one stack. Vectors of pictures, sounds or series take the places of placeholder
tokens. `Joint` is the input of such a stack, and `Tower` a medium that another stack reads first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from ...core.layout import Grid, Layout
from ...core.several import shown
from ...core.spec import Cost, Spec, brief, counted, nearest
from ..layers.embedding import Embedding, Input, InputModule, TokenEmbedding
from ..layers.feedforward import ACTIVATIONS, Activation
from ..layers.linear import Linear
from ..layers.norm import NoNorm, Norm
from ..layers.patches import Patches, image_layout, patchify, unpatchify
from ..patterns.basic import media as of_one_medium
from ..positions.absolute import NoPosition
from ..positions.axes import AxisGrid, over_axes
from ..positions.base import Position, PositionModule, Widths
from .base import ModelSpec
from .stack import Stack, StackModule

Values = Tensor | Sequence[Tensor]
"""Inputs of one kind: a tensor (N, …) if all have one size, or a sequence of N tensors (…) of any sizes."""

MediaInputs = Mapping[str, Values]
"""Inputs by the names of their media, in the order of their placeholder tokens, row by row."""


# -- media that a stack reads first --------------------------------------------------------------------------------------


class Projector(Spec, kind="projector"):
    """From the states of a tower to vectors of a decoder: mean over `pool` × `pool` places, norm, `shuffle` × `shuffle`
    places side by side in one vector (pixel shuffle), then x W + b, or with `hidden` W₂ f(W₁ x + b₁) + b₂.

    A linear layer is PaliGemma's (Beyer et al. 2024), `hidden` LLaVA-1.5's (Liu et al. 2023), `pool` Gemma 3's and
    `shuffle` Idefics 3's (Laurençon et al. 2024).
    """

    pool: int = Field(default=1, gt=0)
    norm: Norm = NoNorm()
    shuffle: int = Field(default=1, gt=0)
    hidden: int | None = Field(default=None, gt=0)
    activation: Activation = "gelu"
    bias: bool = True

    def grid_of(self, grid: Grid) -> Grid:
        """The grid of vectors over a grid of states. Raises ValueError if its rows or columns can't be divided."""
        side = self.pool * self.shuffle
        if grid.rows % side or grid.columns % side:
            raise ValueError(
                f"{grid.rows} × {grid.columns} patches of the vision tower can't be joined {side} × {side} to a vector; "
                f"give pictures whose patches are a multiple of {side} in rows and columns"
            )
        return Grid(grid.rows // side, grid.columns // side)

    def cost(self, width: int, d_model: int, tokens: int = 0) -> Cost:
        """Cost of `tokens` vectors of width `d_model`, from states of `width`."""
        read = width * self.shuffle**2
        sizes = ((read, d_model),) if self.hidden is None else ((read, self.hidden), (self.hidden, d_model))
        parameters = sum(a * b + b * self.bias for a, b in sizes)
        return Cost(parameters, 2 * tokens * sum(a * b for a, b in sizes)) + self.norm.cost(
            width, tokens * self.shuffle**2
        )


class ProjectorModule(nn.Module):
    """The module of `Projector`."""

    def __init__(self, spec: Projector, width: int, d_model: int) -> None:
        super().__init__()
        self.spec, read = spec, width * spec.shuffle**2
        self.norm = spec.norm.module(width)
        self.up = None if spec.hidden is None else Linear(read, spec.hidden, spec.bias)
        self.out = Linear(spec.hidden or read, d_model, spec.bias)

    def forward(self, states: Float[Tensor, "B N W"], grid: Grid | None) -> Float[Tensor, "B P M"]:
        pool, shuffle = self.spec.pool, self.spec.shuffle
        if pool > 1:
            assert grid is not None
            picture = unpatchify(states, Grid(grid.rows, grid.columns), (1, 1))
            states = nn.functional.avg_pool2d(picture, pool).flatten(2).mT
            grid = Grid(grid.rows // pool, grid.columns // pool)
        states = self.norm(states)
        if shuffle > 1:
            assert grid is not None
            picture = unpatchify(states, Grid(grid.rows, grid.columns), (1, 1))
            states = patchify(picture, (shuffle, shuffle), channels="last")
        if self.up is not None:
            states = ACTIVATIONS[self.spec.activation](self.up(states))
        out: Tensor = self.out(states)
        return out


def laid(reader: InputModule, values: Tensor) -> tuple[Tensor, Layout]:
    """What a reader takes of its input, and the layout of its tokens."""
    if reader.lays:
        return reader.lay(values, None)
    return values, Layout.full(values.shape[1], device=values.device)


class Tower(Input, kind="tower"):
    """Vectors that a stack of `width` makes of its input, such as a ViT of a picture, projected to the decoder's width.

    Only the states of patches are used, not of tokens before and after them. A video (F, C, H, W) is read picture by
    picture, in the order of time.

    frames: pictures of a video that a patch spans, as C · frames channels: c · frames + f is channel c of picture f. A
            single picture is repeated (Qwen2-VL, Wang et al. 2024).
    """

    stack: Stack
    width: int = Field(gt=0)
    projector: Projector = Projector()
    frames: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Tower:
        if self.stack.embedding.table(1, 1):
            raise ValueError(
                "a tower reads patches or vectors, and this stack reads tokens; the decoder reads these itself"
            )
        if self.stack.embedding.grid is not None:
            self.projector.grid_of(self.stack.embedding.grid)
        elif self.projector.pool * self.projector.shuffle > 1:
            raise ValueError("a projector that joins places needs a stack over a grid, such as patches of a picture")
        return self

    @property
    def grid(self) -> Grid | None:
        read = self.stack.embedding.grid
        return None if read is None else self.projector.grid_of(read)

    def module(self, vocab_size: int, d_model: int) -> TowerModule:
        return TowerModule(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        states = tokens * (self.projector.pool * self.projector.shuffle) ** 2
        read = self.stack.embedding.grid
        extra = read.before + read.after if read is not None and tokens else 0
        return self.stack.cost(self.width, None, 0, states + extra) + self.projector.cost(self.width, d_model, tokens)


class _Laid(NamedTuple):
    """What the stack of a tower reads: for each video, `times` pictures behind one another."""

    values: Tensor
    layout: Layout
    times: int


class TowerModule(InputModule):
    """The module of `Tower`."""

    lays: ClassVar[bool] = True

    def __init__(self, spec: Tower, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.stack = StackModule(spec.stack, 0, spec.width, None, "tower")
        self.projector = ProjectorModule(spec.projector, spec.width, d_model)

    def tie(self) -> None:
        """Share the parameters that blocks have in common."""
        self.stack.tie()

    def lay(self, values: Tensor, layout: Layout | None = None, mask: Tensor | None = None) -> tuple[Tensor, Layout]:
        values, times = self._by_time(values)
        values, layout = laid(self.stack.embedding, values)
        read = cast(Tensor, _Laid(values, layout, times))
        if layout.grid is None:
            return read, Layout.full(layout.shape[1], device=layout.device)
        grid = self.spec.projector.grid_of(layout.grid)
        if times == 1:
            return read, image_layout(grid, layout.device)
        return read, replace(Layout.full(times * grid.patches, device=layout.device), grid=grid)

    def _by_time(self, values: Tensor) -> tuple[Tensor, int]:
        """Pictures as the stack reads them, and how many there are of each video."""
        frames = self.spec.frames
        if values.ndim != 5:
            return (values.repeat_interleave(frames, 1) if frames > 1 and values.ndim == 4 else values), 1
        if not values.shape[1] or values.shape[1] % frames:
            raise ValueError(
                f"videos are (number, pictures, channels, height, width) with a multiple of {frames} pictures here, not "
                f"{tuple(values.shape)}; repeat the last picture"
            )
        by_time = values.unflatten(1, (-1, frames)).flatten(0, 1)
        return by_time.transpose(1, 2).flatten(1, 2), values.shape[1] // frames

    def forward(
        self, read: _Laid, position: Float[Tensor, "B P M"] | None, token_types: Tensor | None = None
    ) -> Float[Tensor, "B P M"]:
        states, grid = self.stack(read.values, read.layout), read.layout.grid
        if grid is not None:
            states = states[:, grid.before : grid.before + grid.patches]
        vectors: Tensor = self.projector(states, grid).unflatten(0, (-1, read.times)).flatten(1, 2)
        return vectors if position is None else vectors + position.to(vectors.dtype)


# -- the joint input -----------------------------------------------------------------------------------------------------


class Medium(Spec, kind="medium"):
    """One kind of media in a joint sequence.

    name:     of the media in `media={name: …}`.
    token:    the placeholder token; each stands for one vector.
    video:    the placeholder token of videos (F, C, H, W) among the pictures of this medium, if it is another.
    reads:    the input that makes the vectors, such as `Patches` or a `Tower`.
    position: positional encoding that is added to the vectors, such as `GridPosition` over patches without a tower.
    interval: positions from one picture of a video to the next, for positions over axes (`positions.axes`).
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    token: int = Field(ge=0)
    video: int | None = Field(default=None, ge=0)
    reads: Input
    position: Position = NoPosition()
    interval: float = Field(default=1.0, gt=0)

    @field_validator("reads")
    @classmethod
    def _no_tokens(cls, reads: Input) -> Input:
        if reads.table(1, 1):
            raise ValueError("a medium is patches, states or a tower; tokens are read by the joint input itself")
        return reads

    def widths(self, d_model: int) -> Widths:
        """The sizes that its positions depend on."""
        return Widths(d_model, 1, d_model, self.reads.n_tokens, grid=self.reads.grid)

    def tokens_of(self, shape: Sequence[int]) -> int:
        """How many vectors numbers of a shape become: pictures (C, H, W), sounds (mels, frames), states (T, M)."""
        reads = self.reads.stack.embedding if isinstance(self.reads, Tower) else self.reads
        if isinstance(reads, Patches):
            grid = reads.grid_of((shape[1], shape[2]))
            return (self.reads.projector.grid_of(grid) if isinstance(self.reads, Tower) else grid).tokens
        return reads.tokens_of(shape[0] if len(shape) < 2 or reads.kind == "states" else shape[-1])

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        """Cost of one medium of `tokens` tokens."""
        return self.reads.cost(d_model, 0, tokens) + Cost(self.position.n_parameters(self.widths(d_model)))


class Joint(Embedding, kind="joint"):
    """Tokens and media in one sequence: vectors of media take the places of placeholder tokens, after the scale and before
    positions, norm and dropout are applied to all.

    `with_media` gives any model of tokens such an input.

    In the layout, tokens of media have the role MEDIUM and the number of their medium, which `patterns.Media` reads.
    """

    media: tuple[Medium, ...] = Field(min_length=1)

    @field_validator("media")
    @classmethod
    def _distinct(cls, media: tuple[Medium, ...]) -> tuple[Medium, ...]:
        videos = [medium.video for medium in media if medium.video is not None]
        for what, more in (("name", []), ("token", videos)):
            values = [*(getattr(medium, what) for medium in media), *more]
            if len(set(values)) < len(values):
                raise ValueError(f"each medium has its own {what}, and these have: {', '.join(map(str, values))}")
        return media

    def module(self, vocab_size: int, d_model: int) -> JointEmbedding:
        return JointEmbedding(self, vocab_size, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        """Cost of `tokens` tokens with one medium of each kind and of its default size among them, if they have room."""
        width, sizes = self.width_of(d_model), [medium.reads.n_tokens or 0 for medium in self.media]
        read = sum(sizes) <= tokens
        media = [medium.cost(width, size * read) for medium, size in zip(self.media, sizes, strict=True)]
        return super().cost(d_model, vocab_size, tokens) + sum(media, Cost())


Model = TypeVar("Model", bound=ModelSpec)


def with_media(model: Model, *media: Medium, bidirectional: bool = False) -> Model:
    """Return the spec of a model of tokens with media in its input: GPT-2 that reads pictures is

        with_media(qkv.preset("gpt2"), Medium(name="image", token=50256, reads=Patches(before=0)))

    With `bidirectional` the tokens of a medium attend to each other in both directions: `pattern | media()`.
    Raises ValueError for a model that reads no tokens.
    """
    if not isinstance(model, ModelSpec):
        raise ValueError(f"a spec is that of a model, such as qkv.preset('gpt2'), not {shown(model)}")
    name, stack = next(iter(model.stacks()), ("model", None))
    embedding = getattr(stack, "embedding", None)
    if stack is None or not isinstance(embedding, Embedding):
        raise ValueError(f"media take the places of tokens, and {name} of this model reads none")
    fields = {field: getattr(embedding, field) for field in Embedding.model_fields}
    changes: dict[str, Any] = {f"{name}.embedding": Joint(**fields, media=media)}
    if bidirectional:
        for i, block in enumerate(stack.blocks):
            pattern = getattr(block.attention, "pattern", None)
            if pattern is not None:
                changes[f"{name}.blocks.{i}.attention.pattern"] = pattern | of_one_medium()
    return model.replace(changes)


class MediumModule(nn.Module):
    """The module of `Medium`: makes vectors of media."""

    reader: InputModule
    position: PositionModule

    def __init__(self, spec: Medium, width: int) -> None:
        super().__init__()
        self.reader = spec.reads.module(0, width)
        self.position, self.interval = spec.position.module(spec.widths(width)), spec.interval

    def groups(self, values: Values, device: torch.device) -> list[_Group]:
        """Media of equal sizes together."""
        if isinstance(values, Tensor):
            return [_Group(range(len(values)), *laid(self.reader, values.to(device)))] if len(values) else []
        by_size: dict[tuple[int, ...], list[int]] = {}
        for number, value in enumerate(values):
            by_size.setdefault(tuple(value.shape), []).append(number)
        stacks = ((numbers, torch.stack([values[i] for i in numbers])) for numbers in by_size.values())
        return [_Group(numbers, *laid(self.reader, stack.to(device))) for numbers, stack in stacks]

    def axis_grid(self, layout: Layout) -> AxisGrid | None:
        """The grid of the vectors of a medium with this layout; None if they have no places."""
        grid = layout.grid
        if grid is None or grid.before or grid.after:
            return None
        return AxisGrid(layout.shape[1] // grid.patches, grid.rows, grid.columns, self.interval)

    def forward(self, groups: Sequence[_Group]) -> Float[Tensor, "N M"]:
        """The vectors of all media one after the other."""
        made: dict[int, Tensor] = {}
        for numbers, values, layout in groups:
            options = {"layout": layout} if self.reader.takes_layout else {}
            vectors: Tensor = self.reader(values, self.position.embed(layout), **options)
            if len(groups) == 1:
                return vectors.flatten(0, 1)
            made |= zip(numbers, vectors, strict=True)
        return torch.cat([made[i] for i in range(len(made))])


class _Group(NamedTuple):
    """Media of one size: their numbers, what their reader reads, and the layout of their tokens."""

    numbers: Sequence[int]
    values: Tensor
    layout: Layout


class _Places(NamedTuple):
    """The media of one kind, and the places of their tokens."""

    name: str
    places: Bool[Tensor, "B T"]
    groups: list[_Group]


class JointIds(NamedTuple):
    """What `JointEmbedding` reads: token ids, and the media in their places."""

    ids: Int[Tensor, "B T"]
    media: tuple[_Places, ...]


class JointEmbedding(TokenEmbedding):
    """The module of `Joint`. It reads ids, or with media what `lay_media` makes of both."""

    def __init__(self, spec: Joint, vocab_size: int, d_model: int) -> None:
        super().__init__(spec, vocab_size, d_model)
        width = spec.width_of(d_model)
        self.placeholders = {medium.name: medium.token for medium in spec.media}
        self.videos = {medium.name: -1 if medium.video is None else medium.video for medium in spec.media}
        self.media = nn.ModuleDict({medium.name: MediumModule(medium, width) for medium in spec.media})

    def tie(self) -> None:
        """Share the parameters that blocks of towers have in common."""
        for medium in cast(Iterable[MediumModule], self.media.values()):
            if isinstance(medium.reader, TowerModule):
                medium.reader.tie()

    def lay_media(
        self, ids: Tensor | JointIds, layout: Layout, media: MediaInputs | None
    ) -> tuple[Tensor | JointIds, Layout]:
        """Return ids with the media in their places, and the layout with the numbers of the media.

        Raises ValueError for media that the model does not read, and if media and placeholder tokens differ in number.
        """
        if isinstance(ids, JointIds):
            return ids, layout
        media = {} if media is None else media
        for name in media:
            if name not in self.placeholders:
                raise ValueError(f"this model reads no medium {brief(name)}; {nearest(name, self.placeholders)}")
        found, numbers, grids, tokens = [], torch.zeros_like(ids), list[AxisGrid | None](), list[int]()
        for name, token in self.placeholders.items():
            module = self.media[name]
            assert isinstance(module, MediumModule)
            groups = module.groups(media.get(name, ()), ids.device)
            places = ((ids == token) | (ids == self.videos[name])) & layout.valid
            sizes = dict(pair for g in groups for pair in ((i, g.layout.shape[1]) for i in g.numbers))
            if not (torch.compiler.is_compiling() or ids.is_meta or isinstance(ids, FakeTensor)):
                _check(name, token, places, [sizes[i] for i in range(len(sizes))])
            if groups:
                counts = torch.tensor([sizes[i] for i in range(len(sizes))], device=ids.device)
                each = torch.arange(len(sizes), device=ids.device).repeat_interleave(counts) + len(grids) + 1
                numbers = numbers.masked_scatter(places, each)
                own = dict(pair for g in groups for pair in ((i, module.axis_grid(g.layout)) for i in g.numbers))
                grids, tokens = (
                    [*grids, *(own[i] for i in range(len(own)))],
                    [*tokens, *(sizes[i] for i in range(len(own)))],
                )
                found.append(_Places(name, places, groups))
        if not found:
            return ids, layout
        layout = over_axes(layout, numbers, grids, tokens) if self.over_axes else layout
        return JointIds(ids, tuple(found)), layout.with_media(numbers)

    def forward(self, ids: Int[Tensor, "B T"] | JointIds, *added: Tensor | None) -> Float[Tensor, "B T M"]:  # type: ignore[override]
        if isinstance(ids, Tensor):
            return super().forward(ids, *added)
        anywhere = ids.media[0].places
        for one in ids.media[1:]:
            anywhere = anywhere | one.places
        x = self.scaled(ids.ids.masked_fill(anywhere, 0))  # a placeholder need not be in the table
        for one in ids.media:
            vectors: Tensor = self.media[one.name](one.groups)
            x = x.masked_scatter(one.places[..., None], vectors.to(x.dtype))
        return self.finished(x, *added)


def _check(name: str, token: int, places: Tensor, sizes: Sequence[int]) -> None:
    """Raise ValueError if the placeholder tokens are not as many as the vectors of the media."""
    there, wanted = int(places.sum()), sum(sizes)
    if there == wanted:
        return
    tokens = counted(there, "placeholder token")
    if not sizes:
        rows = places.any(1).nonzero()[:, 0].tolist()
        where = f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from row {rows[0]} on"
        raise ValueError(
            f"the ids hold {tokens} of the medium {name} (id {token}, in {where}), and no {name} was given; give it as "
            f'media={{"{name}": …}}, or leave the tokens out'
        )
    each = f"{sizes[0]}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    raise ValueError(
        f"{counted(len(sizes), 'input')} of the medium {name} ({each} vectors each) fill {wanted} places, and the ids hold "
        f"{tokens} (id {token}); write one for each vector"
    )
