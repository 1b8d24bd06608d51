"""Language models that help to recognize speech: n-grams in ARPA files, and qkv's own of words, pieces or characters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ....core.device import choose
from ....core.spec import brief
from ....data.media.image_files import stamp_of
from ....data.tokenizers.protocol import TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....generation.ctc import WordFusion
from ....generation.log_likelihood import Scorer, score
from ....io.directories import hub_load, weights
from ....io.directories.layout import CONFIG, TOKENIZER, WEIGHTS
from ....io.directories.locate import has_tokenizer, is_hub, locate
from ....io.directories.run_config import read_config
from ....nn.models.build import AnyModel
from ....nn.models.recurrent.model import RecurrentModel
from ....nn.models.transformer import TransformerModel
from .ngrams import NGrams


class LanguageScore:
    """log p of the words that begin a text, and of the text if it has ended, by a language model of tokens."""

    def __init__(self, model: Scorer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.start = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id

    def __call__(self, words: Sequence[str], ended: bool) -> float:
        ids = self.tokenizer.encode(" ".join(words), eos=ended and self.tokenizer.eos_id is not None)
        if not ids or (self.start is None and len(ids) < 2):
            return 0.0
        return score(self.model, [ids], bos_id=self.start).totals[0]


def fusion_of(name: str, tokenizer: TextDecoder, weight: float, bonus: float) -> WordFusion:
    """Fusion with the language model in a file or a directory. Raises ValueError if there is none."""
    place = Path(name).expanduser()
    model = _ngrams(place, stamp_of(place)) if place.is_file() else _language_model(locate(name), name)
    decode = lru_cache(maxsize=1 << 16)(lambda symbols: tokenizer.decode(symbols, skip_special=False))
    return WordFusion(decode, model, weight, bonus)


@lru_cache(maxsize=2)
def _ngrams(path: Path, stamp: tuple[int, int]) -> NGrams:
    return NGrams.read(path)


@lru_cache(maxsize=2)
def _language_model(folder: Path, name: str) -> LanguageScore:
    if not (folder / CONFIG).is_file() or not has_tokenizer(folder):
        raise ValueError(
            f"there is no language model {brief(name)}; name an ARPA file of n-grams, or the directory of a language model "
            "with its tokenizer"
        )
    cpu = choose("cpu")
    model: AnyModel
    if is_hub(folder):
        model, tokenizer = hub_load.check(folder).load(cpu, None, None), Tokenizer.load(folder)
    else:
        spec, _ = read_config(folder / CONFIG)
        model, tokenizer = weights.load(spec, folder / WEIGHTS, cpu), Tokenizer.load(folder / TOKENIZER)
    decodes = isinstance(model, TransformerModel | RecurrentModel) and not model.is_encoder_decoder
    if not decodes or not getattr(getattr(model.spec, "head", None), "predicts_tokens", False):
        raise ValueError(f"{brief(name)} is no language model that continues texts; train one by `qkv train lm`")
    return LanguageScore(model, tokenizer)
