"""What the parts of a model do: logit lens, scores of heads, activation patching, texts that excite a neuron."""
