"""The commands of studies, of shrinking and of costs, one command a file. `qkv.cli.app` finds them by these tables."""

GROUPS = {
    "Train": {
        "ablate": ("ablate", "ablate"),
        "tune": ("tune", "tune"),
        "scaling": ("scaling", "app"),
        "reproduce": ("reproduce", "reproduce"),
    },
    "Look inside": {
        "cost": ("cost_commands", "app"),
    },
    "Shrink and export": {
        "prune": ("prune", "prune"),
        "quantize": ("quantize", "quantize"),
    },
}

# What a word means that is no subcommand.
WITHIN: dict[str, dict[str, str]] = {
    "cost": {
        "estimate profile memory vram ram flops time speed latency params parameters size summary info show": "`qkv cost "
        "predict NAME` predicts the memory, FLOPs and time of a recipe or a preset",
        "max largest batch batch-size max-batch gpu capacity fits": "`qkv cost fit NAME` finds what fits into a memory",
        "diff versus vs": "`qkv cost compare NAME NAME` compares models",
        "cluster gpus parallel ranks parallelism": "`qkv cost plan NAME` plans a training on many devices",
        "attention complexity layer": "`qkv cost layers` compares kinds of layers",
        "flash flashattention hbm sram bandwidth bytes": "`qkv cost traffic` compares the bytes that attention moves",
    },
    "scaling": {
        "law laws curve estimate regress": "`qkv scaling fit TABLE` fits the laws to a table of points",
        "train ladder start": "`qkv scaling run RECIPE` trains a ladder of models",
    },
}
