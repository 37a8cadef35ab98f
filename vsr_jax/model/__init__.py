"""The decoder and its checkpoints."""
