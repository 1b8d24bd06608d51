"""Numbers with their nouns in messages: `1 example`, `1,200 examples`."""


def counted(n: int, noun: str) -> str:
    """A number with thousands separators and its noun, which gets an s unless the number is 1."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
