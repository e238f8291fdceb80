"""Look inside a model: head scores, probes, circuits, interventions, patching, attribution.

Import the file you need (``from minitx.interp import scores, patching``), or name it from the
package: ``minitx.interp.scores``.
"""

from minitx.interp import (
    attribution,
    circuits,
    heads,
    interventions,
    patching,
    probes,
    running,
    scores,
    similarity,
)

__all__ = [
    "attribution",
    "circuits",
    "heads",
    "interventions",
    "patching",
    "probes",
    "running",
    "scores",
    "similarity",
]
