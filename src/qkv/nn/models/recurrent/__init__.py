"""Recurrent encoder–decoders: one fixed vector, Bahdanau attention, Luong attention."""
