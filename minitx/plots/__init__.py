"""One house style for figures, and the panels that several figures share.

Every figure tells treatment from control in the same three ways: colour, marker and line style
(hatch for bars), so it also reads in grey and for colour-blind eyes. Seeds are dots or thin lines,
the 95 % interval over seeds is a bar or a band, and a claim's threshold is a dotted line whose
triangles point to the side that the claim is on. Matplotlib loads when the first figure is made.

    fig, (left, right) = plots.figure(ncols=2)
    plots.seed_dots(left, {"softmax": [.9, .8], "sigmoid": [0., .1]}, roles={"sigmoid": "control"})
    plots.label(left, title="Softmax parks on the first token", x="attention on the first token")
"""

from minitx.plots.matrices import matrix, pattern
from minitx.plots.panels import bars, seed_dots, seed_lines, threshold_line
from minitx.plots.style import (
    COMPARISON,
    CONTROL,
    FONT,
    OKABE_ITO,
    ROLES,
    SERIES,
    TREATMENT,
    Look,
    figure,
    label,
    legend,
    look,
    role_legend,
    suptitle,
)

__all__ = [
    "COMPARISON",
    "CONTROL",
    "FONT",
    "OKABE_ITO",
    "ROLES",
    "SERIES",
    "TREATMENT",
    "Look",
    "bars",
    "figure",
    "label",
    "legend",
    "look",
    "matrix",
    "pattern",
    "role_legend",
    "seed_dots",
    "seed_lines",
    "suptitle",
    "threshold_line",
]
