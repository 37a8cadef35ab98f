"""Updates, loops and checkpoints."""
