"""Modules: what is assigned is found, once, under PyTorch's names."""

import copy
import pickle

import numpy as np
import pytest

from minitx.autograd import Tensor, ops
from minitx.errors import MinitxError, ShapeError
from minitx.nn import Linear, Module, Parameter, Transformer, TransformerConfig, functional_call


class Net(Module):
    def __init__(self, rng):
        self.first = Linear(3, 4, rng=rng)
        self.rest = [Linear(4, 4, bias=False, rng=rng), Linear(4, 2, rng=rng)]
        self.scale = Parameter(np.ones(2, np.float32))
        self.tied = self.rest[0].weight

    def forward(self, x):
        x = ops.relu(self.first(x))
        for layer in self.rest:
            x = layer(x)
        return x * self.scale


@pytest.fixture
def net(rng):
    return Net(rng)


@pytest.fixture
def model(rng):
    return Transformer(TransformerConfig(vocab_size=5, max_len=4, d_model=8, n_heads=2), rng)


def test_names_are_paths_and_a_tied_weight_counts_once(net):
    names = [name for name, _ in net.named_parameters()]
    assert names == [
        "scale", "tied", "first.weight", "first.bias", "rest.1.weight", "rest.1.bias",
    ]  # fmt: skip
    assert net.num_parameters() == 12 + 4 + 16 + 8 + 2 + 2
    assert [name for name, _ in net.named_modules()] == ["", "first", "rest.0", "rest.1"]


def test_a_mistyped_attribute_raises(net):
    with pytest.raises(AttributeError, match="weigth"):
        _ = net.first.weigth


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module does not define"):
        Module()(1)


def test_state_survives_a_round_trip_and_is_a_copy(net, rng):
    state = net.state_dict()
    for p in net.parameters():
        p.data[...] = 0
    assert state["scale"].sum() == 2
    other = Net(rng)
    other.load_state_dict(state)
    for name, p in other.named_parameters():
        assert np.array_equal(p.data, state[name])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: s.pop("scale"), MinitxError, "lacks 1 of 6 parameters, the first is 'scale'"),
        (lambda s: s.update(scael=s["scale"]), MinitxError, "'scael'.*Did you mean 'scale'"),
        (lambda s: s.update({"first.bias": np.zeros(3)}), ShapeError, r"'first.bias'.*\(4,\)"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(net, change, error, message):
    state = {name: array + 1 for name, array in net.state_dict().items()}
    change(state)
    before = net.state_dict()
    with pytest.raises(error, match=message):
        net.load_state_dict(state)
    for name, array in net.state_dict().items():
        assert np.array_equal(array, before[name])


def test_without_strict_what_fits_is_loaded(net):
    net.load_state_dict({"scale": np.full(2, 7.0), "other": np.zeros(1)}, strict=False)
    assert np.array_equal(net.scale.data, [7, 7])


def test_mode_reaches_every_module(net):
    assert all(not m.training for m in net.eval().modules())
    assert all(m.training for m in net.train().modules())


def test_frozen_parameters_get_no_gradient_and_zero_grad_forgets(net):
    net.first.requires_grad_(False)
    ops.sum(net(Tensor(np.ones((1, 3), np.float32)))).backward()
    assert net.first.weight.grad is None and net.scale.grad is not None
    net.zero_grad()
    assert net.scale.grad is None


def test_apply_visits_every_module_once(net):
    seen = []
    assert net.apply(seen.append) is net
    assert len(seen) == 4


def test_functional_call_sends_gradients_to_the_values_given(net):
    x = Tensor(np.ones((1, 3), np.float32))
    own = net.state_dict()
    scale, tied = Tensor(np.full(2, 3.0), True), Tensor(np.ones((4, 4)), True)
    out = functional_call(net, {"scale": scale, "tied": tied}, x)
    ops.sum(out).backward()
    # the tied weight was replaced in both of its places, and both parameters are back
    assert net.tied is net.rest[0].weight and isinstance(net.scale, Parameter)
    assert np.allclose(scale.grad, out.data[0] / 3) and tied.grad is not None
    assert net.scale.grad is None
    assert all(np.array_equal(a, own[n]) for n, a in net.state_dict().items())


def test_functional_call_restores_after_an_error_and_knows_its_names(net):
    before = net.scale
    with pytest.raises(ShapeError):
        functional_call(net, {"scale": Tensor(np.ones(2))}, Tensor(np.ones((1, 9))))
    assert net.scale is before
    with pytest.raises(MinitxError, match="Did you mean 'scale'"):
        functional_call(net, {"scal": Tensor(np.ones(2))}, Tensor(np.ones((1, 3))))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_transformer_has_a_buffer_of_its_own(model, clone):
    twin = clone(model)
    tokens = np.array([[1, 2, 3]])
    assert np.array_equal(twin(tokens).data, model(tokens).data)
    assert all(np.shares_memory(p.data, twin.flat) for p in twin.parameters())
    twin.flat[...] = 0
    assert not np.array_equal(twin(tokens).data, model(tokens).data)
    assert twin.W_Q.sum() == 0 and model.W_Q.any()


def test_all_parameters_lie_in_one_buffer(model):
    assert model.flat.size == model.num_parameters()
    model.flat[...] = np.arange(model.flat.size)
    values = np.concatenate([p.data.ravel() for p in model.parameters()])
    assert np.array_equal(values, model.flat)
