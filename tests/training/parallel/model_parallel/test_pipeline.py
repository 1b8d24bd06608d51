"""Stages of a pipeline send what every backend has."""

from __future__ import annotations

import torch

from qkv.training.parallel.model_parallel import pipeline


def test_pipelines_send_dtypes_that_nccl_has() -> None:
    """`ncclDataType` of PyTorch's ProcessGroupNCCL.cpp: 16-bit and unsigned integers, and complex numbers, are missing."""
    of_nccl = {torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool}
    of_nccl |= {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    assert of_nccl.issuperset(pipeline._DTYPES)
