"""Learning one thing after another: metrics of what is kept, and strategies that keep it.

``metrics`` are pure functions of an accuracy matrix; ``strategies`` plug into `minitx.training.fit`.
"""
