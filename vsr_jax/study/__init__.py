"""Measurements and studies: stages, run folders."""
