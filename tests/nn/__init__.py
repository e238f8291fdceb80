"""Tests of the modules, the transformer and its hooks."""
