"""Data parallelism: replicas of the model (DDP), and the stages of ZeRO up to FSDP2."""
