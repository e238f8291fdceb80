"""Attention sinks: why heads park on the first token, and what depends on it."""
