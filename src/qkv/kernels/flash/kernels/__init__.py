"""What runs on the device, in Triton's language. Nothing here is imported before the first call that needs it."""
