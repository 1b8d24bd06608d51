"""Joint sequences: tokens and media in one stack. Vectors of pictures, sounds or series take the places of placeholder
tokens. `Joint` is the input of such a stack, and `Tower` a medium that another stack reads first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from ...core.layout import Grid, Layout
from ...core.ranks import LayerDraws
from ...core.several import shown
from ...core.spec import Cost, Spec, brief, counted, nearest
from ..layers.embedding import Embedding, Input, InputModule, TokenEmbedding
from ..layers.patches import Patches, Projector, ProjectorModule, image_layout
from ..patterns.basic import media as of_one_medium
from ..patterns.documents import numbered, numbers_inside, places_of, placing
from ..positions.absolute import NoPosition
from ..positions.axes import AxisGrid, over_axes
from ..positions.base import Position, PositionModule, Widths
from .base import ModelSpec
from .stack import Stack, StackModule


class TimedVideo(NamedTuple):
    """The pixels of a video (F, C, H, W), and the seconds between two pictures (or groups of pictures) that have different
    times. The medium's `interval` is multiplied by these seconds."""

    values: Tensor
    seconds: float


Values = Tensor | Sequence[Tensor | TimedVideo]
"""Inputs of one kind: a tensor (N, …) if all have one size, or a sequence of N tensors (…) of any sizes."""

MediaInputs = Mapping[str, Values]
"""Inputs by the names of their media, in the order of their placeholder tokens, row by row."""


# -- media that a stack reads first --------------------------------------------------------------------------------------


def laid(reader: InputModule, values: Tensor) -> tuple[Tensor, Layout]:
    """What a reader takes of its input, and the layout of its tokens."""
    if reader.lays:
        return reader.lay(values, None)
    return values, Layout.full(values.shape[1], device=values.device)


class Tower(Input, kind="tower"):
    """States of a stack of `width` that reads a medium, such as a ViT for pictures, projected to the decoder's width.

    Only the states of patches are used, not the states of tokens before and after them. A video (F, C, H, W) is read picture
    by picture, in the order of time.

    frames: pictures of a video that a patch spans, as C · frames channels: c · frames + f is channel c of picture f. A
            single picture is repeated (Qwen2-VL, Wang et al. 2024).
    layers: layers of the stack, counted from 0, whose states are projected too, each by a `deep` projector. The decoder
            adds the vectors of the first one to the output of its first layer, at the medium's tokens, and so on
            (DeepStack, Meng et al. 2024). A decoder with fewer layers leaves the last ones out.
    """

    stack: Stack
    width: int = Field(gt=0)
    projector: Projector = Projector()
    frames: int = Field(default=1, gt=0)
    layers: tuple[int, ...] = ()
    deep: Projector = Projector()

    @model_validator(mode="after")
    def _has_layers(self) -> Tower:
        if not self.layers:
            return self
        if list(self.layers) != sorted({*self.layers} & {*range(self.stack.n_layers)}):
            raise ValueError(
                f"layers whose states the decoder adds are numbers from 0 to {self.stack.n_layers - 1} in increasing order, "
                f"not {brief(list(self.layers))}"
            )
        if self.stack.blocks[0].placement.streams > 1:
            raise ValueError(
                f"states after layers have one residual stream, and {self.stack.blocks[0].placement.kind} blocks have more"
            )
        joins = [projector.pool * projector.shuffle for projector in (self.projector, self.deep)]
        if joins[0] != joins[1]:
            raise ValueError(
                f"the projector joins {joins[0]} × {joins[0]} places and the one of deep layers {joins[1]} × {joins[1]}; "
                "make them equal"
            )
        return self

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
        deep = self.deep.cost(self.width, d_model, tokens) * len(self.layers)
        projected = self.projector.cost(self.width, d_model, tokens) + deep
        return self.stack.cost(self.width, None, 0, states + extra) + projected


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
        self.deep = nn.ModuleList(ProjectorModule(spec.deep, spec.width, d_model) for _ in spec.layers)

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
    ) -> Float[Tensor, "B P L*M"]:
        """Return the vectors, each concatenated with the vectors of `layers`."""
        after = dict.fromkeys(self.spec.layers, read.values)
        states = self.stack(read.values, read.layout, after=after or None)
        vectors = self._projected(states, self.projector, read)
        vectors = vectors if position is None else vectors + position.to(vectors.dtype)
        deep = [self._projected(after[i], project, read) for i, project in zip(after, self.deep, strict=True)]
        return torch.cat([vectors, *deep], -1) if deep else vectors

    def _projected(self, states: Tensor, projector: nn.Module, read: _Laid) -> Float[Tensor, "B P M"]:
        grid = read.layout.grid
        if grid is not None:
            states = states[:, grid.before : grid.before + grid.patches]
        vectors: Tensor = projector(states, grid).unflatten(0, (-1, read.times)).flatten(1, 2)
        return vectors


# -- the joint input -----------------------------------------------------------------------------------------------------


class Medium(Spec, kind="medium"):
    """One kind of media in a joint sequence.

    name:     of the media in `media={name: …}`.
    token:    the placeholder token; each stands for one vector.
    video:    the placeholder token of videos (F, C, H, W) among the pictures of this medium, if it is a different one.
    reads:    the input that makes the vectors, such as `Patches` or a `Tower`.
    position: positional encoding that is added to the vectors, such as `GridPosition` over patches without a tower.
    interval: positions from one picture of a video to the next, for positions over axes (`positions.axes`).
    apart:    whether pictures of a video are separate in the text, as in Qwen3-VL, which writes the time before each. Each
              then has positions like a single picture.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    token: int = Field(ge=0)
    video: int | None = Field(default=None, ge=0)
    reads: Input
    position: Position = NoPosition()
    interval: float = Field(default=1.0, gt=0)
    apart: bool = False

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

    @property
    def further(self) -> int:
        return max(len(medium.reads.layers) if isinstance(medium.reads, Tower) else 0 for medium in self.media)

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
        self.position = spec.position.module(spec.widths(width))
        self.interval, self.apart = spec.interval, spec.apart

    def groups(self, values: Values, device: torch.device) -> list[_Group]:
        """Media of equal sizes together."""
        if isinstance(values, Tensor):
            return [_Group(range(len(values)), *laid(self.reader, values.to(device)))] if len(values) else []
        by_size: dict[tuple[int, ...], list[int]] = {}
        plain = [value.values if isinstance(value, TimedVideo) else value for value in values]
        for number, value in enumerate(plain):
            by_size.setdefault(tuple(value.shape), []).append(number)
        stacks = ((numbers, torch.stack([plain[i] for i in numbers])) for numbers in by_size.values())
        return [_Group(numbers, *laid(self.reader, stack.to(device))) for numbers, stack in stacks]

    def runs(self, layout: Layout, value: Tensor | TimedVideo) -> list[tuple[AxisGrid | None, int]]:
        """The runs of tokens of a medium with this layout: the grid of each, None if its tokens have no places, and how
        many there are."""
        grid, tokens = layout.grid, layout.shape[1]
        if grid is None or grid.before or grid.after:
            return [(None, tokens)]
        times = tokens // grid.patches
        if self.apart:
            return [(AxisGrid(1, grid.rows, grid.columns), grid.patches)] * times
        interval = self.interval
        if isinstance(value, TimedVideo):  # in single precision, as published models were trained
            interval = (torch.tensor(interval) * torch.tensor(value.seconds)).item()
        return [(AxisGrid(times, grid.rows, grid.columns, interval), tokens)]

    def forward(
        self, groups: Sequence[_Group], draws: LayerDraws, documents: Int[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N M"]:
        """The vectors of all media one after the other. `documents` are the media's numbers for dropout."""
        made: dict[int, Tensor] = {}
        for numbers, values, layout in groups:
            draws.begin(0)
            options = {"layout": layout} if self.reader.takes_layout else {}
            with numbered(None if documents is None else documents[list(numbers)]), placing(places_of(layout)):
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
    """The media of one kind, the places of their tokens, and the media's numbers for dropout."""

    name: str
    places: Bool[Tensor, "B T"]
    groups: list[_Group]
    documents: Int[Tensor, " N"] | None


class JointIds(NamedTuple):
    """What `JointEmbedding` reads: token ids, and the media in their places."""

    ids: Int[Tensor, "B T"]
    media: tuple[_Places, ...]


class JointEmbedding(TokenEmbedding):
    """The module of `Joint`. It reads ids, or with media what `lay_media` makes of both."""

    def __init__(self, spec: Joint, vocab_size: int, d_model: int) -> None:
        super().__init__(spec, vocab_size, d_model)
        width = spec.width_of(d_model)
        if spec.further and width != d_model:
            raise ValueError(
                f"vectors of deep layers have the width of the decoder, {d_model}, and embeddings {width}; make them equal"
            )
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
                runs = {i: module.runs(group.layout, media[name][i]) for group in groups for i in group.numbers}
                own = [run for i in range(len(runs)) for run in runs[i]]
                counts = torch.tensor([count for _, count in own], device=ids.device)
                each = torch.arange(len(own), device=ids.device).repeat_interleave(counts) + len(grids) + 1
                numbers = numbers.masked_scatter(places, each)
                grids, tokens = [*grids, *(grid for grid, _ in own)], [*tokens, *(count for _, count in own)]
                documents = numbers_inside(layout, places, [sizes[i] for i in range(len(sizes))])
                found.append(_Places(name, places, groups, documents))
        if not found:
            return ids, layout
        layout = over_axes(layout, numbers, grids, tokens) if self.over_axes else layout
        return JointIds(ids, tuple(found)), layout.with_media(numbers)

    def forward(  # type: ignore[override]
        self, ids: Int[Tensor, "B T"] | JointIds, *added: Tensor | None
    ) -> Float[Tensor, "B T M"] | tuple[Tensor, tuple[Tensor, ...]]:
        """The input of the stack; with media of which it adds vectors of deep layers, (x, further)."""
        draws = LayerDraws()
        if isinstance(ids, Tensor):
            draws.begin(1)
            return super().forward(ids, *added)
        anywhere = ids.media[0].places
        for one in ids.media[1:]:
            anywhere = anywhere | one.places
        x = self.scaled(ids.ids.masked_fill(anywhere, 0))  # a placeholder need not be in the table
        deep: list[Tensor] = []
        for one in ids.media:
            made: Tensor = self.media[one.name](one.groups, draws, one.documents).to(x.dtype)
            vectors, *further = made.split(x.shape[-1], -1)
            x = x.masked_scatter(one.places[..., None], vectors)
            there = [torch.zeros_like(x).masked_scatter(one.places[..., None], each) for each in further]
            deep = [a + b for a, b in zip_longest(deep, there, fillvalue=x.new_zeros(()))]
        draws.begin(1)
        x = self.finished(x, *added)
        return (x, tuple(deep)) if deep else x


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
