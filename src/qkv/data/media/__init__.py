"""Images, video, audio and music as arrays: decoding, resizing, spectrograms and augmentation."""
