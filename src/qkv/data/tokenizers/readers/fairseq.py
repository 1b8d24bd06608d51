"""Tokenizers of fairseq's models (mBART, NLLB, M2M-100, CamemBERT): SentencePiece models with different ids.

fairseq has different first tokens, and mBART, NLLB and M2M-100 have language tokens after the pieces. Texts are split as by
SentencePiece.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tokenizers

from ....core.spec import brief
from ..sentencepiece.model_file import Piece, PieceKind, SentencePiece
from ..sentencepiece.pipeline import pipeline
from .hub_config import HubConfig
from .hub_families import CAMEMBERT, M2M_100, MBART, NLLB, TokenizerFamily
from .vocab_files import read_vocab_json
from .xlm_roberta_albert import FIRST

VOCABULARY = "vocab.json"  # the ids of M2M-100's pieces
_CAMEMBERTS_FIRST = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")  # its <s> and </s> are the model's

_MBART = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX
ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART_50 = f"""{_MBART}
af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN
te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
_NLLB = """
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab ary_Arab
arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng
bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn
cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn
pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn
hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn
jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn
khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn
lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn
mkd_Cyrl plt_Latn mlt_Latn mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva
nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab
quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn
sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn
tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn tso_Latn tuk_Latn
tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn
xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn
"""
_M2M_100 = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig
ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl
so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
_WMT_21 = "en ha is ja cs ru zh de"


def fairseq(
    model: SentencePiece, family: TokenizerFamily, config: HubConfig, vocabulary_path: Path
) -> tokenizers.Tokenizer:
    """Return the tokenizer of a family, with the ids of vocab.json for M2M-100.

    Raises ValueError if the model begins with other pieces than fairseq expects, or if vocab.json lacks pieces.
    """
    if [piece.text for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise ValueError(f"a {family.name} tokenizer has a model whose first pieces are <unk>, <s> and </s>")
    if family is CAMEMBERT:
        pieces = [*map(_control, _CAMEMBERTS_FIRST), *model.pieces[1:], _control("<mask>")]
    elif family is M2M_100:
        pieces = [*_numbered(model, vocabulary_path), *map(_control, _languages(family, config))]
    else:
        pieces = [*map(_control, FIRST), *model.pieces[3:], *map(_control, (*_languages(family, config), "<mask>"))]
    unk_id = next(i for i, piece in enumerate(pieces) if piece.text == "<unk>")
    return pipeline(replace(model, pieces=tuple(pieces), unk_id=unk_id))


def _languages(family: TokenizerFamily, config: HubConfig) -> list[str]:
    """Return the language tokens in the order of their ids."""
    if family is M2M_100:
        few = config.values.get("language_codes") == "wmt21"
        return [f"__{code}__" for code in (_WMT_21 if few else _M2M_100).split()]
    codes = _NLLB if family is NLLB else _MBART if family is MBART else _MBART_50
    return codes.split()


def _numbered(model: SentencePiece, path: Path) -> list[Piece]:
    """Return the model's pieces in the order of vocab.json."""
    vocabulary = read_vocab_json(path)
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[name] for name in names] != list(range(len(names))) or "<unk>" not in vocabulary:
        raise ValueError(f"{path.name} must number its pieces from 0 without gaps, and contain '<unk>'")
    normal = {piece.text: piece for piece in model.pieces if piece.kind is PieceKind.NORMAL}
    missing = [text for text in normal if text not in vocabulary]
    if missing:
        raise ValueError(
            f"{path.name} lacks {len(missing):,} of the model's pieces, such as {brief(missing[0])}; "
            "give the two files of one tokenizer"
        )
    return [normal.get(name, _control(name)) for name in names]


def _control(name: str) -> Piece:
    return Piece(name, 0.0, PieceKind.UNKNOWN if name == "<unk>" else PieceKind.CONTROL)
