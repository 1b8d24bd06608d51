"""The commands that explain, one command a file. `qkv.cli.app` finds them by these tables."""

GROUPS = {
    "Look inside": {
        "doctor": ("doctor", "doctor"),
    },
    "Learn": {
        "explain": ("explain", "explain"),
        "tour": ("tour", "tour"),
    },
}

# What a word means that is no subcommand.
WITHIN: dict[str, dict[str, str]] = {}
