"""`python -m bench translating`: translation by encoder–decoders beside CTranslate2 and Hugging Face transformers."""
