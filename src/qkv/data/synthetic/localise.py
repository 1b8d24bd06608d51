"""Translation pairs generated from the Unicode CLDR (`localise`), in any number and without a download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from ...core.optional_libraries import is_installed, need
from ...core.spec import brief, nearest
from ..shuffle import mix, text_hash
from ..source import SPLITS, Example, Source, Split, Table
from ..tables import ComputedTable
from .base import distinct_examples

if TYPE_CHECKING:
    from .cldr_phrases import Form, Item, Writer

_SHARE = 20  # one in twenty phrases belongs to validation, another to test


class Localise(Source, kind="localise"):
    """English → each of `languages`, marked by a tag: `<de> 3 days ago` → `vor 3 Tagen`.

    Dates in every length, times, months and quarters, relative times, intervals, numbers, percentages, compact numbers,
    currencies, units, names and lists of them. If one English text has two renderings, the source names the style:
    `<de> <medium> May 5, 2026`. So a source has exactly one target.

    Each epoch draws `train` new pairs, balanced over languages and domains. Validation and test are phrases whose
    English text is never trained on, in any language. The *anchors* (every name, and every pattern with every word that
    can occur in it) are always trained on: each epoch begins with them.

        languages: CLDR locale names: de, fr, ja, pt_BR, zh_Hant …
        domains:   some of `qkv.data.synthetic.cldr_phrases.DOMAINS`, or none for all.
        names:     "common" territories, languages and currencies, or "all" in CLDR.
        seed:      selects the validation and test phrases; training draws with the seed of the run.
    """

    takes_time: ClassVar[bool] = True

    languages: tuple[str, ...] = Field(default=("de", "fr", "ja"), min_length=1)
    domains: tuple[str, ...] = ()
    names: Literal["common", "all"] = "common"
    train: int = Field(default=100_000, ge=1)
    validation: int = Field(default=600, ge=1)
    test: int = Field(default=600, ge=1)
    seed: int = 0

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        if not is_installed("babel"):  # a run that was trained on these data works without it
            return languages
        from .cldr_locales import open_locale

        return tuple(dict.fromkeys(str(open_locale(name)) for name in languages))

    @field_validator("domains")
    @classmethod
    def _known_domains(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        if not is_installed("babel"):
            return domains
        from .cldr_phrases import DOMAINS

        for domain in domains:
            if domain not in DOMAINS:
                raise ValueError(f"there is no domain {brief(domain)}; {nearest(domain, DOMAINS)}")
        return tuple(dict.fromkeys(domains))

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("babel",)

    @property
    def special(self) -> tuple[str, ...]:
        texts = (example["source"].partition("> ")[2] for example in _anchors(self))
        styles = dict.fromkeys(text[1 : text.index(">")] for text in texts if text.startswith("<"))
        return (*(f"<{language}>" for language in self.languages), *(f"<{style}>" for style in styles))

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(f"<{language}>" for language in self.languages)

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        if split != "train":
            return _held_out(self, split)
        anchors, draw, before = _anchors(self), _pairs(self).draw, mix(seed, epoch)
        head = min(len(anchors), self.train // 2)  # a short epoch has room for some; the next continues

        def example(i: int) -> Example:
            if i < head:
                return anchors[(epoch * head + i) % len(anchors)]
            return draw(Random(mix(i, after=before)), i, "train")

        return ComputedTable(self.train, example)


class LocalisePairs:
    """Draws the pairs of a source."""

    def __init__(self, spec: Localise) -> None:
        self.voices, self.seed = _voices(spec), str(spec.seed)
        self.anchors = frozenset(example["source"].partition("> ")[2] for example in _anchors(spec))

    def draw(self, random: Random, i: int, split: Split) -> Example:
        """Return pair `i` of a split. `i` determines its language and domain."""
        turn, which = divmod(i, len(self.voices))
        voice = self.voices[which]
        domains = voice.domains if split == "train" else voice.held_out_domains
        forms = domains[turn % len(domains)]
        while True:
            form = random.choice(forms)
            text, target = voice.pair(form, form.draw(random))
            if self.split_of(text) == split:
                return {"source": voice.tag + text, "target": target}

    def split_of(self, text: str) -> Split:
        """The split of an English text (with its control word, without its language tag)."""
        remainder = text_hash(text, self.seed) % _SHARE
        if remainder > 1 or text in self.anchors:
            return "train"
        return "validation" if remainder == 0 else "test"


@dataclass(frozen=True)
class Rendering:
    """A form in English and in the language of a voice.

    earlier: the forms of its domain that come before it.
    """

    style: str
    has: Callable[[Item], bool]
    english: Writer
    target: Writer
    earlier: tuple[Rendering, ...]


class Voice:
    """One target language, with the forms that both it and English support, by domain."""

    def __init__(self, language: str, domains: tuple[str, ...], every_name: bool) -> None:
        from .cldr_locales import open_locale
        from .cldr_phrases import DOMAINS

        self.language, self.locale, self.english = language, open_locale(language), open_locale("en")
        supported = [
            tuple(form for form in DOMAINS[name](language, every_name) if self._supports(form))
            for name in domains or DOMAINS
        ]
        self.domains = [forms for forms in supported if forms]
        self.held_out_domains = [forms for forms in self.domains if forms[0].domain != "name"]
        self.tag = f"<{language}> "
        self._renderings = {id(form): each for forms in self.domains for form, each in self._rendered(forms)}
        if not self.held_out_domains:
            tried = ", ".join(domains or DOMAINS)
            raise ValueError(
                f"CLDR has no phrases in {brief(language)} that can be held out, in {tried}; give more domains"
            )

    def _supports(self, form: Form) -> bool:
        return form.supported(self.english) and form.supported(self.locale)

    def _rendered(self, forms: Sequence[Form]) -> Iterator[tuple[Form, Rendering]]:
        earlier: tuple[Rendering, ...] = ()
        for form in forms:
            one = Rendering(form.style, form.has, form.writer(self.english), form.writer(self.locale), earlier)
            yield form, one
            earlier += (one,)

    def pair(self, form: Form, item: Item) -> tuple[str, str]:
        """Return the English text and its target. The style is added before the text if an earlier form has the same text
        with another target."""
        one = self._renderings[id(form)]
        text, target = plain(one.english(item)), one.target(item)
        for other in one.earlier:
            if other.has(item) and plain(other.english(item)) == text and other.target(item) != target:
                return f"<{one.style}> {text}", target
        return text, target

    def anchors(self) -> Iterator[tuple[str, str]]:
        """(text, target) of every anchor."""
        for forms in self.domains:
            for form in forms:
                for item in form.anchors:
                    yield self.pair(form, item)


def plain(english: str) -> str:
    """An English text with plain spaces in place of CLDR's narrow and non-breaking ones."""
    return " ".join(english.split())


@lru_cache(maxsize=8)
def _voices(spec: Localise) -> tuple[Voice, ...]:
    need("the source localise", *spec.libraries)
    return tuple(Voice(language, spec.domains, spec.names == "all") for language in spec.languages)


@lru_cache(maxsize=8)
def _anchors(spec: Localise) -> tuple[Example, ...]:
    pairs = {f"<{voice.language}> {text}": target for voice in _voices(spec) for text, target in voice.anchors()}
    return tuple({"source": source, "target": target} for source, target in pairs.items())


@lru_cache(maxsize=8)
def _pairs(spec: Localise) -> LocalisePairs:
    return LocalisePairs(spec)


@lru_cache(maxsize=16)
def _held_out(spec: Localise, split: Split) -> list[Example]:
    """The validation or test pairs."""
    size, number, draw = getattr(spec, split), SPLITS.index(split), _pairs(spec).draw
    examples = (draw(Random(mix(spec.seed, number, i)), i, split) for i in range(5 * size))
    return distinct_examples(examples, size)
