"""`python -m bench transcribing`: Whisper beside faster-whisper."""
