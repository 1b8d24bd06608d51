"""Checks of the installation and of this machine, for `qkv doctor`: what is there, what is broken, what is slow and why."""
