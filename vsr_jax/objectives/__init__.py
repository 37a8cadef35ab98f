"""Losses as pure functions of a chunk of logits."""
