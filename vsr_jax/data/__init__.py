"""Benchmarks, prompt framings, the rollout store and the micro world."""
