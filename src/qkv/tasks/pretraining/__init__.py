"""Pre-training on text: masked, prefix and denoising language modeling, and replaced-token detection."""
