"""Pictures, sound and music as arrays, and their augmentation."""
