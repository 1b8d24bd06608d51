"""The tables: for each the cases that it compares, and how its results are written down. A new one is a file here."""

from __future__ import annotations

from . import (
    attention,
    cache,
    decode,
    dropout,
    families,
    growth,
    loading,
    moe,
    multi30k,
    objectives,
    optimizers,
    precision,
    recurrent,
    rows,
    shakespeare,
    startup,
    train,
    vit,
)
from .table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        attention.TABLE,
        growth.TABLE,
        train.TABLE,
        dropout.TABLE,
        rows.TABLE,
        recurrent.TABLE,
        multi30k.TABLE,
        shakespeare.TABLE,
        decode.TABLE,
        cache.TABLE,
        families.TABLE,
        moe.TABLE,
        precision.TABLE,
        optimizers.TABLE,
        loading.TABLE,
        objectives.TABLE,
        startup.TABLE,
        vit.TABLE,
    )
}
