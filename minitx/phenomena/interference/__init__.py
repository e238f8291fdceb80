"""Interference: what else is in the context gets in the way of what is asked for."""
