"""Look inside a model: head scores, probes, circuits, interventions, patching, attribution.

Import the file you need: ``from minitx.interp import scores, patching``.
"""
