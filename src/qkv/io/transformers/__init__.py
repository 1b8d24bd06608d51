"""Any qkv model behind the classes of the library transformers (`qkv.transformers`)."""
