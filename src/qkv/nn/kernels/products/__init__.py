"""Products y = x Wᵀ + b of few rows with matrices in fp32, bf16, int8 or int4, at memory's pace if there are kernels."""
