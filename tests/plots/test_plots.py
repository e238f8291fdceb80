"""Panels draw what they were given, tell roles apart also in grey, and touch no global state."""

import io
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from minitx import plots
from minitx.errors import MinitxError, ShapeError
from minitx.statistics import bootstrap_interval


def lightness(color):
    """Rec. 709 luma: what is left of a colour in a grey print."""
    return float(np.dot(to_rgb(color), [0.2126, 0.7152, 0.0722]))


def test_importing_plots_loads_no_matplotlib_and_figures_no_pyplot():
    code = (
        "import sys, minitx.plots as p; assert 'matplotlib' not in sys.modules\n"
        "fig, ax = p.figure(); p.seed_dots(ax, {'a': [1, 2]}); fig.canvas.draw()\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_roles_differ_in_every_sign_and_in_grey():
    looks = list(plots.ROLES.values())
    for sign in ("color", "marker", "linestyle", "hatch"):
        assert len({getattr(look, sign) for look in looks}) == len(looks)
    assert abs(lightness(plots.TREATMENT.color) - lightness(plots.CONTROL.color)) > 0.25
    assert plots.TREATMENT.filled and not plots.CONTROL.filled
    assert {look.color for look in looks} <= set(plots.OKABE_ITO.values())


def test_an_unknown_role_lists_the_known():
    _, ax = plots.figure()
    with pytest.raises(MinitxError, match="control"):
        plots.seed_dots(ax, {"a": [1.0]}, roles={"a": "contrl"})


def test_seed_dots_draw_every_seed_with_interval_and_threshold():
    _, ax = plots.figure()
    values = {"softmax": [0.9, 0.8, 0.7], "sigmoid": [0.0, 0.1, 0.2]}
    plots.seed_dots(
        ax,
        values,
        roles={"sigmoid": "control"},
        threshold={"softmax": 0.6, "sigmoid": 0.25},
        direction={"sigmoid": "at_most"},
        names={"sigmoid": "sigmoid (control)"},
    )
    drawn = [sorted(line.get_xdata()) for line in ax.lines]
    for seeds in values.values():
        assert sorted(seeds) in drawn
    assert [text.get_text() for text in ax.get_yticklabels()] == ["softmax", "sigmoid (control)"]
    upright = [line for line in ax.lines if list(line.get_xdata()) == [0.6, 0.6]]
    assert len(upright) == 1 and np.mean(upright[0].get_ydata()) == 0
    carets = {line.get_marker(): line.get_xdata()[0] for line in ax.lines}
    assert carets[9] == 0.6 and carets[8] == 0.25  # right for at_least, left for at_most


def test_one_seed_and_missing_values_do_not_break_a_panel():
    fig, (left, right) = plots.figure(ncols=2)
    plots.seed_dots(left, {"one": [0.5], "missing": [np.nan, np.nan], "some": [0.1, np.nan]})
    plots.seed_lines(right, [0, 1, 2], np.ones((1, 3)), "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Matplotlib warns when a layout cannot be had
        fig.savefig(io.BytesIO())


def test_seed_lines_want_seeds_by_points():
    _, ax = plots.figure()
    with pytest.raises(ShapeError, match=r"\[seeds, 3\].*\[5, 4\]"):
        plots.seed_lines(ax, [0, 1, 2], np.zeros((5, 4)))


def test_threshold_lines_point_to_the_claimed_side():
    _, ax = plots.figure()
    plots.threshold_line(ax, 0.5, "at_most", text="claimed")
    assert ax.lines[-1].get_marker() == 11  # caret down, standing on the line
    with pytest.raises(MinitxError, match="got 'below'"):
        plots.threshold_line(ax, 0.5, "below")


def test_pattern_leaves_the_callers_array_alone():
    _, ax = plots.figure()
    weights = np.full((4, 4), 0.25)
    plots.pattern(ax, weights, tokens=list("abcd"), colorbar=True)
    assert (weights == 0.25).all()
    shown = ax.images[0].get_array()
    assert np.array_equal(np.ma.getmaskarray(shown), np.triu(np.ones((4, 4), bool), 1))
    with pytest.raises(ShapeError, match=r"\[1, 4, 4\]"):
        plots.pattern(ax, weights[None])


def test_matrix_writes_its_numbers():
    _, ax = plots.figure()
    plots.matrix(ax, [[0.25, np.nan]], rows=["r"], columns=["a", "b"])
    assert [text.get_text() for text in ax.texts] == ["0.25"]
    with pytest.raises(ShapeError, match=r"\[1, 2\].*2 row labels"):
        plots.matrix(ax, [[0.25, 1.0]], rows=["r", "s"], columns=["a", "b"])


def test_bars_rise_to_the_mean_and_are_hatched_for_controls():
    _, ax = plots.figure()
    plots.bars(ax, {"a": [1.0, 3.0], "b": [0.0, 0.5]}, roles={"b": "control"}, threshold={"a": 1.5})
    heights = [patch.get_height() for patch in ax.patches]
    assert heights == [2.0, 2.0, 0.25, 0.25]
    assert ax.patches[2].get_hatch() == plots.CONTROL.hatch


def test_titles_say_the_message_and_wrap():
    fig, ax = plots.figure()
    plots.label(ax, title="a long message " * 6, x="position", y="loss (nats)")
    assert "\n" in ax.get_title(loc="left") and ax.get_ylabel() == "loss (nats)"
    plots.suptitle(fig, "message")
    assert plots.role_legend(ax, names={"control": "no BOS"}).get_texts()[1].get_text() == "no BOS"


@pytest.mark.parametrize("n", [2, 3, 5, 11, 60])
def test_a_figure_shows_the_interval_that_the_verdict_uses(n, rng):
    seeds = rng.exponential(size=n)
    _, ax = plots.figure()
    plots.seed_dots(ax, {"arm": seeds})
    whisker = next(line for line in ax.lines if line.get_linewidth() == 5)
    assert tuple(whisker.get_xdata()) == bootstrap_interval(seeds)[1:]


def test_a_mosaic_gives_named_panels():
    fig, axes = plots.figure(mosaic="AAB;CCC", size=(6, 4))
    assert sorted(axes) == ["A", "B", "C"] and len(fig.axes) == 3


def test_rows_of_panels_need_not_line_up():
    fig, axes = plots.figure(rows=["abc", "AB"], heights=[1, 2], size=(6, 4))
    assert sorted(axes) == ["A", "B", "a", "b", "c"]
    fig.savefig(io.BytesIO())
    assert axes["A"].get_position().width > axes["a"].get_position().width
