"""Published results that qkv reproduces: the commands, the published numbers beside ours, and what differs in set-up."""
