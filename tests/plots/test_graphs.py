"""Pictures of computations."""

import pytest

from minitx.errors import MinitxError
from minitx.plots import figure
from minitx.plots.graphs import _places, graph


def test_every_node_stands_to_the_right_of_its_inputs_and_none_on_another():
    inputs = {"d": ["b", "c"], "a": [], "b": ["a"], "c": ["a", "e"], "e": []}
    places = _places(inputs)
    assert len(set(places.values())) == len(inputs)
    for node, made_from in inputs.items():
        assert all(places[other][0] < places[node][0] for other in made_from)


def test_names_values_and_gradients_are_written():
    fig, ax = figure()
    graph(ax, {"a": [], "b": ["a", "a"]}, values={"b": "9"}, gradients={"a": "6"})
    texts = {text.get_text() for text in ax.texts}
    assert {"a", "b", "9", "6"} <= texts
    assert sum(bool(text.arrow_patch) for text in ax.texts if hasattr(text, "arrow_patch")) == 2
    fig.canvas.draw()


def test_what_is_no_graph_is_refused():
    _, ax = figure()
    with pytest.raises(MinitxError, match="cycle"):
        graph(ax, {"a": ["b"], "b": ["a"]})
    with pytest.raises(MinitxError, match="not in it"):
        graph(ax, {"a": ["b"]})
