"""Pictures of a model's inside: they say what they show, and leave their input alone."""

import sys

import numpy as np
import pytest

from minitx.errors import MinitxError, ShapeError
from minitx.plots import interp


def stochastic(rng, *shape):
    w = np.tril(rng.exponential(size=shape))
    w /= w.sum(-1, keepdims=True)
    w.setflags(write=False)
    return w


def texts(ax):
    return [t.get_text() for t in ax.texts]


def ticks(ax, axis):
    return [t.get_text() for t in getattr(ax, f"get_{axis}ticklabels")()]


@pytest.mark.parametrize("length", [1, 7, 300])
def test_patterns_of_every_length_are_labelled_without_crowding(rng, length, tmp_path):
    weights, words = stochastic(rng, 3, length, length), [f"t{i}" for i in range(length)]
    before = weights.tobytes()
    fig = interp.patterns(weights, words, title="Where heads look")
    panels = fig.axes
    assert [ax.get_title(loc="left") for ax in panels] == ["head 0", "head 1", "head 2"]
    assert ticks(panels[0], "x")[0] == ticks(panels[0], "y")[0] == "t0"
    assert len(ticks(panels[0], "x")) <= interp.LABELS
    np.testing.assert_array_equal(
        panels[1].images[0].get_array().compressed().size, length * (length + 1) // 2
    )
    fig.savefig(tmp_path / "p.png")
    assert weights.tobytes() == before


def test_queries_fewer_than_keys_are_the_last_ones(rng):
    fig = interp.patterns(np.full((2, 5), 0.2), list("abcde"), causal=False)
    assert ticks(fig.axes[0], "y") == ["d", "e"]


def test_grids_of_head_scores_write_the_numbers(rng):
    fig = interp.head_grids({"previous": rng.random((2, 3)), "induction": np.full((2, 3), 0.25)})
    assert texts(fig.axes[1]) == ["0.25"] * 6
    assert fig.axes[1].get_title(loc="left") == "induction"
    assert len(interp.head_grids(rng.random((2, 3))).axes) == 1


def test_patching_maps_are_centred_on_zero(rng, tmp_path):
    values = np.array([[0.5, -2.0], [np.nan, 0.0]])
    fig = interp.patching_map(values, ["a", "b"], title="x", rows=["in", "out"])
    ax = fig.axes[0]
    assert ax.images[0].get_clim() == (-2.0, 2.0)
    assert texts(ax) == ["0.50", "-2.00", "0.00"]
    assert ticks(ax, "x") == ["a", "b"] and ticks(ax, "y") == ["in", "out"]
    assert interp.patching_map(values / 10).axes[0].images[0].get_clim() == (-1.0, 1.0)
    fig.savefig(tmp_path / "p.png")


def test_a_lens_table_writes_the_likeliest_token_and_frames_the_right_one(tmp_path):
    logits = np.log(np.array([[[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]], [[0.1, 0.8, 0.1]] * 2]))
    fig = interp.lens_table(logits, ["x", "y"], ["A", "B", "C"], targets=[1, 2])
    ax = fig.axes[0]
    assert texts(ax) == ["A", "C", "B", "B"]
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.7, 0.6], [0.8, 0.8]])
    framed = {(round(p.get_y() + 0.44), round(p.get_x() + 0.46)) for p in ax.patches}
    assert framed == {(0, 1), (1, 0)}  # (row, position)
    assert ticks(ax, "y") == ["input", "layer 0"]
    fig.savefig(tmp_path / "p.png")


def test_shapes_that_do_not_fit_are_told(rng):
    with pytest.raises(ShapeError, match=r"\[H, T, S\]"):
        interp.patterns(np.zeros(3))
    with pytest.raises(ShapeError, match="2 titles for 3"):
        interp.patterns(stochastic(rng, 3, 4, 4), titles=["a", "b"])
    with pytest.raises(ShapeError, match="5 tokens"):
        interp.patterns(stochastic(rng, 4, 4), tokens="abcde")
    with pytest.raises(ShapeError, match=r"\[L, H\]"):
        interp.head_grid_panel(None, np.zeros(3))
    with pytest.raises(ShapeError, match="3 labels for the 2 columns"):
        interp.patching_map(np.zeros((1, 2)), tokens="abc")
    with pytest.raises(ShapeError, match=r"\[L \+ 1, T, V\]"):
        interp.lens_table(np.zeros((2, 2)))
    with pytest.raises(MinitxError, match="no scores"):
        interp.head_grids({})


def test_no_global_figure_is_made(rng):
    interp.patterns(stochastic(rng, 4, 4))
    assert (
        "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    )
