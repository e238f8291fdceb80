"""Forgetting: what learning one thing does to what was known."""
