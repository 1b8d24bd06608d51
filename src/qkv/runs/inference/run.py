"""`qkv.load` and `Run`: load a run directory or a Hub model, and generate, score, embed, classify or predict with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...core import several
from ...core.device import choose, dtype_of
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...io.directories import hub_load, origin
from ...io.directories import weights as weight_files
from ...io.directories.layout import CONFIG, GENERATION, MAX_SHARD_SIZE, RECIPE, TOKENIZER, WEIGHTS, read_json
from ...io.directories.locate import is_hub, locate
from ...io.directories.run_config import (
    advice_on_imports,
    check_fit,
    check_task,
    expects_tokenizer,
    read_config,
    read_generation,
    read_imports,
    usual_task,
)
from ...io.hub.gguf.container import is_gguf
from ...io.hub.quantized.config import quantization_of
from ..recipes import imports as recipe_imports
from . import unknown_words
from .loaded import LoadedModel, as_grammar, draft_for

if TYPE_CHECKING:  # methods import what they need when they are called
    from ...data.tokenizers.chat.messages import Messages, Tools
    from ...generation.grammar.rules import Grammar
    from ...generation.settings import GenerationOptions
    from ...io.directories.save import Format
    from ...io.directories.sentence_transformers import Pooling
    from ...look.view.figure import Figure
    from ...nn.activations import Activations
    from ...nn.activations.intervene import Changes
    from ...nn.quantization.scheme import Scheme, Weights
    from ..recipes.recipe import Recipe
    from .classify import Classified
    from .fill import Filled
    from .loaded import TextMedia
    from .output import Output
    from .predict import Prediction
    from .publish.push import Pushed, PushOptions
    from .reading.beside import Given, OptionsWithFiles
    from .score import TextScore
    from .transcribe import Sound, SoundT, Transcript


class Run(LoadedModel):
    """A trained model for inference; see `LoadedModel` for its fields."""

    def settings(self, **options: Unpack[GenerationOptions]) -> Generation:
        """Return the run's `Generation` with changes. Raises ValueError for an unknown option or one out of range."""
        return self.generation.replace(options)

    def constrained(self, grammar: Grammar) -> Self:
        """Return the run with outputs that a grammar allows, such as `Grammar.json_schema({…})`; this run is unchanged."""
        return replace(self, grammar=as_grammar(grammar))

    @overload
    def generate(
        self,
        texts: str,
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        num_samples: None = None,
        **options: Unpack[OptionsWithFiles],
    ) -> str: ...
    @overload
    def generate(
        self,
        texts: Sequence[str],
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        num_samples: None = None,
        **options: Unpack[OptionsWithFiles],
    ) -> list[str]: ...
    @overload
    def generate(
        self,
        texts: str,
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        num_samples: int,
        **options: Unpack[OptionsWithFiles],
    ) -> str | list[str]: ...
    @overload
    def generate(
        self,
        texts: Sequence[str],
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        num_samples: int,
        **options: Unpack[OptionsWithFiles],
    ) -> list[str] | list[list[str]]: ...
    def generate(
        self,
        texts: str | Sequence[str],
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        images: Given = None,
        sounds: Given = None,
        videos: Given = None,
        **options: Any,
    ) -> str | list[str] | list[list[str]]:
        """Return the output for one text, or a list of outputs for a list of texts.

        With `num_samples` of more than 1, each output is a list of samples. An encoder–decoder translates; a language model
        continues the text, which is not part of the output. Options are the fields of `Generation`; an output ends before
        the first `stop` string in it. `draft` is a smaller run with the same tokenizer that proposes tokens; other forms of
        speculation are the option `speculate`. `images`, `sounds` and `videos` are for runs that read them beside texts:
        files, pictures of Pillow or arrays in the order of the placeholders, such as `<image>`, in the texts; without
        placeholders they stand before the texts, one for all or one for each.
        """
        settings = self.settings(**{key: item for key, item in options.items() if (key, item) != ("num_samples", None)})
        results = self.outputs(
            several.texts(texts), settings, stop=stop, draft=draft, images=images, sounds=sounds, videos=videos
        )
        outputs = [[output.text for output in samples] for samples in results]
        return _one_or_all(texts, outputs if settings.num_samples > 1 else [samples[0] for samples in outputs])

    def outputs(
        self,
        texts: Sequence[str],
        settings: Generation | None = None,
        *,
        stop: str | Sequence[str] = (),
        scores: bool = False,
        draft: LoadedModel | None = None,
        images: Given = None,
        sounds: Given = None,
        videos: Given = None,
    ) -> list[list[Output]]:
        """As `generate`, with tokens, the reason why each output ended and, with `scores`, log-probabilities."""
        prompts, media = self._read(texts, images, sounds, videos)
        other = draft_for(self, draft)
        return self.outputs_of(prompts, settings or self.generation, stop=stop, scores=scores, draft=other, media=media)

    def stream(
        self,
        prompt: str,
        emit: Callable[[str], None],
        settings: Generation | None = None,
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        images: Given = None,
        sounds: Given = None,
        videos: Given = None,
    ) -> Output:
        """Pass one output to `emit` piece by piece, as it is generated, and return it."""
        (ids,), media = self._read([several.text(prompt, "the prompt")], images, sounds, videos)
        other, beside = draft_for(self, draft), media[0] if media else None
        return self.stream_of(ids, settings or self.generation, emit, stop=stop, draft=other, media=beside)

    def chat(
        self,
        messages: Messages,
        emit: Callable[[str], None] | None = None,
        *,
        stop: str | Sequence[str] = (),
        draft: LoadedModel | None = None,
        tools: Tools = None,
        images: Given = None,
        sounds: Given = None,
        videos: Given = None,
        **options: Unpack[GenerationOptions],
    ) -> str:
        """Return the assistant's reply to a conversation, see `qkv.runs.inference.chat.chat`."""
        from .chat import chat

        return chat(
            self,
            messages,
            emit,
            stop=stop,
            draft=draft,
            tools=tools,
            images=images,
            sounds=sounds,
            videos=videos,
            **options,
        )

    @overload
    def score(self, texts: str, targets: str | None = None) -> TextScore: ...
    @overload
    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[TextScore]: ...
    def score(
        self, texts: str | Sequence[str], targets: str | Sequence[str] | None = None
    ) -> TextScore | list[TextScore]:
        """Return the log-likelihood of texts (language model), or of targets given texts, per token and in total."""
        from .score import score

        beside = several.texts_beside(texts, targets, "targets")
        return _one_or_all(texts, score(self, self._encoded(several.texts(texts)), beside))

    @overload
    def embed(self, texts: str, *options: Any, **named: Any) -> Tensor: ...
    @overload
    def embed(self, texts: Sequence[str], *options: Any, **named: Any) -> list[Tensor]: ...
    @overload
    def embed(self, *, images: str | Path, normalize: bool | None = None) -> Tensor: ...
    @overload
    def embed(self, *, images: Sequence[str | Path], normalize: bool | None = None) -> list[Tensor]: ...
    def embed(
        self,
        texts: str | Sequence[str] | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
    ) -> Tensor | list[Tensor]:
        """Return embeddings, see `qkv.runs.inference.embed.embed`; a dual encoder's also of `images`, picture files."""
        from .embed import embed, embed_images

        if texts is not None and images is None:
            return _one_or_all(texts, embed(self, several.texts(texts), pooling, normalize, prompt))
        if images is not None and texts is None:
            return _one_or_all(images, embed_images(self, several.paths(images, "images"), normalize))
        raise ValueError("give texts or images, and call embed twice for both; their vectors are in one space")

    def embed_array(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        """Return the embeddings of all texts as one NumPy array (texts, M), with the options of `embed`."""
        from .embed import embed_array

        return embed_array(self, several.texts(texts), **options)

    @overload
    def fill(self, texts: str, top_k: int = 5) -> Filled: ...
    @overload
    def fill(self, texts: Sequence[str], top_k: int = 5) -> list[Filled]: ...
    def fill(self, texts: str | Sequence[str], top_k: int = 5) -> Filled | list[Filled]:
        """Return the likeliest tokens for each mask in each text, see `qkv.runs.inference.fill.fill`."""
        from .fill import fill

        return _one_or_all(texts, fill(self, several.texts(texts), top_k))

    @overload
    def classify(self, texts: str, pairs: str | None = None) -> Classified: ...
    @overload
    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Classified]: ...
    def classify(
        self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None
    ) -> Classified | list[Classified]:
        """Classify each text, or each pair of texts, with the probability of every class."""
        from .classify import classify

        return _one_or_all(texts, classify(self, several.texts(texts), several.texts_beside(texts, pairs, "pairs")))

    @overload
    def classify_files(self, paths: str | Path, *options: Any) -> Classified: ...
    @overload
    def classify_files(self, paths: Sequence[str | Path], *options: Any) -> list[Classified]: ...
    def classify_files(
        self, paths: str | Path | Sequence[str | Path], classes: str | Sequence[str] = (), templates: Sequence[str] = ()
    ) -> Classified | list[Classified]:
        """Classify the picture, sound or video in each file; dual encoders (CLIP) by names of `classes` in `templates`."""
        from .classify_files import classify_files

        return _one_or_all(paths, classify_files(self, several.paths(paths, "paths"), classes, templates))

    @overload
    def predict(self, inputs: str | Path, **options: Any) -> Prediction: ...
    @overload
    def predict(self, inputs: Sequence[str | Path | tuple[str, ...]], **options: Any) -> list[Prediction]: ...
    def predict(
        self, inputs: str | Path | Sequence[str | Path | tuple[str, ...]], **options: Any
    ) -> Prediction | list[Prediction]:
        """Predict on new inputs by the run's task or a Hub model's head, see `qkv.runs.inference.predict.predict`."""
        from .predict import predict

        return _one_or_all(inputs, list(predict(self, several.inputs(inputs), **options)))

    @overload
    def transcribe(self, sounds: Sound, **options: Any) -> Transcript: ...
    @overload
    def transcribe(self, sounds: list[SoundT], **options: Any) -> list[Transcript]: ...
    def transcribe(self, sounds: Sound | list[SoundT], **options: Any) -> Transcript | list[Transcript]:
        """Return the `Transcript` of a sound, or of each in a list, see `qkv.runs.inference.transcribe.transcribe`."""
        from .transcribe import transcribe

        return transcribe(self, sounds, **options)

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: Sequence[str], b: Sequence[str]) -> list[float]: ...
    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> float | list[float]:
        """Return the similarity of two texts, or of a[i] and b[i], see `qkv.runs.inference.classify.similarity`."""
        from .classify import similarity

        return _one_or_all(a, similarity(self, several.texts(a, "a"), several.texts_beside(a, b, "b") or []))

    def quantize(self, weights: Weights | Scheme, **options: Any) -> Self:
        """Return the run with quantized weights, which generates, evaluates and saves like this one; this run is unchanged.

        weights:     int8, int4, nf4, fp8 or mxfp4, or a `Scheme`.
        group_size:  inputs that share a scale, by default all for int8 and fp8, 128 for int4, 64 for nf4, 32 for mxfp4.
        symmetric:   False gives int8 and int4 zero points.
        activations: "int8" or "fp8" also rounds the inputs of products, each token by its largest number.
        method:      rtn (rounding), gptq or awq; by default gptq for 4 bits if there are calibration data.
        calibrate:   `examples` of data for gptq and awq: a split of the run's data, by default "train", a file, or texts.
        embeddings, head: whether to quantize these too, or their own `Scheme`. keep: paths to leave out, as shell patterns.

        Raises ValueError for a layer that can't take the weights, for quantizing twice, and for empty calibration data.
        Warns if gptq or awq left experts to rounding, because few tokens were routed to them.
        """
        from .quantization.quantize import quantized_with_warning

        return quantized_with_warning(self, weights, **options)

    def dequantize(self) -> Self:
        """Return a copy of the run with dequantized weights, which can be trained."""
        from .quantization.quantize import dequantized

        return dequantized(self)

    def record(self, names: Iterable[str] | str | None = None) -> AbstractContextManager[Activations]:
        """Record named activations of every pass inside a `with` block, see `qkv.nn.activations.record`."""
        from ...nn.activations import record

        return record(self.model, names)

    def intervene(self, changes: Changes) -> AbstractContextManager[None]:
        """Change activations in every pass inside a `with` block, see `qkv.nn.activations.intervene`."""
        from ...nn.activations import intervene

        return intervene(self.model, changes)

    def look(self, inputs: str | Path | Sequence[str | Path], **options: Any) -> Figure:
        """Return the attention of every layer and head on each input as a figure, with the options of
        `qkv.runs.inference.look.figure.look`. A notebook displays it; `figure.save("page.html")` writes it."""
        from .look.figure import look

        return look(self, inputs, **options)

    def save(
        self,
        path: Path | str,
        to: Format | None = None,
        *,
        max_shard_size: int | str = MAX_SHARD_SIZE,
        with_weights: bool = True,
        overwrite: bool = False,
    ) -> Path:
        """Write a directory that `load` reads. A model that is there is replaced only if `overwrite` is true, or
        if this process saved it from the same model. A directory that holds anything else is refused.

        "hub" writes the format of `transformers`: of a Hub family, or for a Transformer of none, with a warning, of
        `qkv.transformers`. "qkv" writes qkv's own model type. The default is "hub" if a family matches, else "qkv". Weights
        of a family are files of at most `max_shard_size` (bytes, or "5GB"); `with_weights=False` leaves them out. "hub" also
        writes a model card, `README.md`; a card that somebody edited is never replaced.
        """
        from .publish.directory import write

        return write(self, path, to, max_shard_size=max_shard_size, with_weights=with_weights, overwrite=overwrite)

    def push(self, repository: str, **options: Unpack[PushOptions]) -> Pushed:
        """Upload what `save(to="hub")` writes to a repository of the Hub, see `qkv.runs.inference.publish.push.push`."""
        from .publish.push import push

        return push(self, repository, **options)

    save_pretrained = save  # transformers' name

    def _read(self, texts: Sequence[str], *files: Given) -> tuple[list[list[int]], Sequence[TextMedia]]:
        """The ids of texts, and the media of each if the run reads them beside texts."""
        if not self.media and all(some is None for some in files):
            return self._encoded(texts), ()
        from .reading.beside import read

        return read(self, texts, *files)

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids that the model reads for each text, with a warning about what it has never seen in them."""
        if isinstance(texts, str):
            raise ValueError("texts are a list of strings here; put a single one into a list: [text]")
        texts = several.texts(texts)
        rows = list(map(self.encode, texts))
        unknown_words.warn(self, texts, rows)
        return rows


@several.worded
@several.in_our_names()
def load(
    path: Path | str,
    device: str | torch.device = "auto",
    *,
    dtype: str | torch.dtype | None = None,
    weights: str | Scheme | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    imports: bool = False,
) -> Run:
    """Load a run directory, a directory in the format of the Hub, a GGUF file, or a model by its name on the Hub.

    "small-english" is a small language model of English books that comes with the package. Weights keep the file's `dtype`
    by default, or with "auto". With `weights`, linear layers are quantized to int8, int4, nf4, fp8 or mxfp4, or by a
    `Scheme`; `Run.quantize` has more accurate methods. `revision` is a branch, tag or commit on the Hub. Pickled weights
    are read only with `allow_pickle`, and then nothing but tensors. With `imports`, modules that a run names are imported;
    otherwise no code of a directory runs. Raises ValueError, before anything is allocated, if there is no model or an
    unfinished run, a file is damaged or a pickle, a key of the configuration is unknown and matters, or files don't match.
    """
    folder, where = locate(path, revision, allow_pickle), choose(device)
    numbers, scheme = dtype_of(None if dtype == "auto" else dtype), _scheme(weights)
    if is_gguf(folder):
        return _load_gguf(folder, where, numbers, scheme)
    if imports or recipe_imports.consent is not None:
        for names in filter(None, read_imports(folder)):
            from ..recipes import places

            recipe_imports.import_named(places.beside({"imports": names}, folder / RECIPE)["imports"], str(folder))
    if is_hub(folder):
        return _load_hub(folder, where, numbers, allow_pickle, scheme)
    from .reading.complete import check_complete

    check_complete(folder)
    (spec, task), recipe = read_config(folder / CONFIG), _recipe(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER) if expects_tokenizer(folder) else None
    if tokenizer is not None:
        check_fit(tokenizer, spec, str(folder))
    quantization, said = quantization_of(read_json(folder / CONFIG), folder), origin.kept(folder, spec)
    model = weight_files.load(spec, folder / WEIGHTS, where, numbers, quantization, scheme)
    model.origin, generation = said, read_generation(folder / GENERATION, spec.is_encoder_decoder)
    return Run(model, tokenizer, said.ids.unbounded(generation) if said else generation, task, recipe, folder, said)


from_pretrained = load  # transformers' name


def _load_hub(
    folder: Path, device: torch.device, dtype: torch.dtype | None, allow_pickle: bool, scheme: Scheme | None
) -> Run:
    found = hub_load.check(folder, allow_pickle)
    with ThreadPoolExecutor(1) as pool:  # the weights are copied meanwhile
        tokenizing = pool.submit(found.tokenizer)
        model, said, tokenizer = found.load(device, dtype, scheme), found.origin, tokenizing.result()
    try:
        generation = Generation.from_dict(dict(said.fields))
    except ValueError as error:
        raise ValueError(f"{folder / GENERATION}: {error}") from None
    task = said.own.get("task", usual_task(model.spec))
    check_task(task, model.spec, folder / CONFIG)
    return Run(model, tokenizer, generation, task, _recipe(folder), folder, said, allow_pickle)


def _load_gguf(path: Path, device: torch.device, dtype: torch.dtype | None, scheme: Scheme | None) -> Run:
    from ...io.directories import gguf_load

    model, said, tokenizer = gguf_load.load(path, device, dtype, scheme)
    return Run(model, tokenizer, Generation.from_dict(dict(said.fields)), usual_task(model.spec), None, path, said)


def _scheme(weights: str | Scheme | None) -> Scheme | None:
    if weights is None:
        return None
    from ...nn.quantization.scheme import scheme_of

    return scheme_of(weights)


def _recipe(folder: Path) -> Recipe | None:
    """Load a run's recipe. Raises ValueError, naming the modules to import first, if parts of it are not defined."""
    if not (folder / RECIPE).is_file():
        return None
    from ..recipes.recipe import Recipe

    try:
        return Recipe.load(folder / RECIPE, imports=False)
    except ValueError as error:
        names = recipe_imports.missing(itertools.chain(*read_imports(folder)))
        raise ValueError(f"{error}{advice_on_imports(names)}" if names else str(error)) from None


def _one_or_all(inputs: Any, results: list[Any]) -> Any:
    """The only result if a single input was given, else all results."""
    return results[0] if isinstance(inputs, str | Path) else results
