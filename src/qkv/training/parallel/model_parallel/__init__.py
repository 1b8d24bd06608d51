"""Model parallelism: one model divided over ranks by heads and neurons, tokens, experts, or layers."""
