"""Names of the languages that Whisper's language tokens stand for."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from ....core.spec import brief

_NAMES = """
en english, zh chinese mandarin, de german, es spanish castilian, ru russian, ko korean, fr french, ja japanese, pt
portuguese, tr turkish, pl polish, ca catalan valencian, nl dutch flemish, ar arabic, sv swedish, it italian, id
indonesian, hi hindi, fi finnish, vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs czech, ro romanian
moldavian moldovan, da danish, hu hungarian, ta tamil, no norwegian, th thai, ur urdu, hr croatian, bg bulgarian, lt
lithuanian, la latin, mi maori, ml malayalam, cy welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr
serbian, az azerbaijani, sl slovenian, kn kannada, et estonian, mk macedonian, br breton, eu basque, is icelandic, hy
armenian, ne nepali, mn mongolian, bs bosnian, kk kazakh, sq albanian, sw swahili, gl galician, mr marathi, pa punjabi
panjabi, si sinhala sinhalese, km khmer, sn shona, yo yoruba, so somali, af afrikaans, oc occitan, ka georgian, be
belarusian, tg tajik, sd sindhi, gu gujarati, am amharic, yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian
haitian_creole, ps pashto pushto, tk turkmen, nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish letzeburgesch, my
myanmar burmese, bo tibetan, tl tagalog, mg malagasy, as assamese, tt tatar, haw hawaiian, ln lingala, ha hausa, ba
bashkir, jw javanese, su sundanese, yue cantonese
"""

CODES: dict[str, str] = {
    name.replace("_", " "): code
    for entry in _NAMES.replace("\n", " ").split(",")
    for code, *names in [entry.split()]
    for name in names
}
"""The code of each language, by its names in lower case."""

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages that put no spaces between words."""


def code_of(language: str, known: Collection[str]) -> str:
    """The code of a language that is given by name, code or token: "english", "EN" and "<|en|>" are "en".

    Raises ValueError, with the languages that there are, if it isn't among the known codes.
    """
    said = language.strip().lower()
    code = CODES.get(said, said.removeprefix("<|").removesuffix("|>"))
    if code in known:
        return code
    names = [name for name, its in CODES.items() if its in known]
    close = get_close_matches(said, [*known, *names], n=1)
    meant = f"did you mean {close[0]}? There is: " if close else "there is: "
    raise ValueError(f"this model has no language {brief(language)}; {meant}{', '.join(sorted(known))}")
