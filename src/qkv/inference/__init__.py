"""A trained model in use: generate, chat, classify, embed, score and predict."""
