"""Capacity: the closed forms of the three memories hold, exactly or within their stated noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.autograd import Tensor, gradcheck, no_grad
from minitx.lab import run
from minitx.phenomena.interference import _memory as memory
from minitx.phenomena.interference.capacity import (
    PAIRS,
    READS,
    RULES,
    Capacity,
    Memory,
    Settings,
    forward_substitution,
    read,
)
from minitx.tasks.recall import KeyValueRecall

seeds = st.integers(0, 9999)
TRIALS = 400


def random_errors(rule, n, d, seed, age=None):
    """Relative errors of one read from each of many memories of random unit keys."""
    rng = np.random.default_rng(seed)
    keys, values = (memory.unit_vectors(rng, TRIALS, n, d) for _ in range(2))
    asked = rng.integers(n, size=TRIALS) if age is None else np.full(TRIALS, n - 1 - age)
    rows = np.arange(TRIALS)
    out = read(rule, keys, values, keys[rows, asked][:, None])[:, 0]
    return memory.relative_error(out, values[rows, asked])


@pytest.mark.law("interference.capacity")
@given(n=st.integers(4, 40), d=st.integers(4, 24), seed=seeds)
def test_error_of_the_additive_memory_is_n_minus_one_over_d(n, d, seed):
    errors = random_errors("linear", n, d, seed)
    expected, sd = memory.linear_error(n, d), memory.linear_error_sd(n, d, d)
    assert expected == (n - 1) / d
    assert abs(errors.mean() / expected - 1.0) <= 5.0 * sd / np.sqrt(TRIALS)


@pytest.mark.parametrize("n, d", [(3, 16), (9, 8), (40, 24)])
def test_its_spread_is_as_stated(n, d):
    errors = np.concatenate([random_errors("linear", n, d, seed) for seed in range(20)])
    expected = memory.linear_error_sd(n, d, d)
    assert abs(errors.std() / memory.linear_error(n, d) / expected - 1.0) < 0.06
    assert memory.linear_error_sd(1, d, d) == 0.0


@pytest.mark.parametrize("n, accuracy", [(32, 0.98), (64, 0.83), (128, 0.46)])
def test_nearest_value_accuracy_at_width_32(n, accuracy):
    rng = np.random.default_rng(0)
    keys, values = (memory.unit_vectors(rng, 30, n, 32) for _ in range(2))
    found = (memory.read_linear(keys, values, keys) @ values.swapaxes(1, 2)).argmax(-1)
    assert abs((found == np.arange(n)).mean() - accuracy) < 0.03
    sharp = (read("softmax", keys, values, keys) @ values.swapaxes(1, 2)).argmax(-1)
    assert (sharp == np.arange(n)).all()


@pytest.mark.law("interference.capacity")
@given(n=st.integers(1, 60), seed=seeds)
def test_softmax_attention_on_the_right_key(n, seed):
    rng = np.random.default_rng(seed)
    keys = memory.unit_vectors(rng, 50, n, 64)
    weights = memory.softmax_weights(keys, keys[:, :1], 16.0)[:, 0]
    assert np.allclose(weights.sum(axis=-1), 1.0)
    assert abs(weights[:, 0].mean() - memory.softmax_gold(n, 64, 16.0)) < 3e-4


@pytest.mark.law("interference.capacity")
@given(n=st.integers(2, 30), d=st.integers(4, 24), share=st.floats(0, 1), seed=seeds)
def test_error_of_the_delta_rule_by_age(n, d, share, seed):
    age = round(share * (n - 1))
    errors = random_errors("delta", n, d, seed, age)
    expected = memory.delta_error(n, d)[age]
    assert abs(errors.mean() - expected) <= 6.0 * errors.std() / np.sqrt(TRIALS) + 1e-12


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_error_of_the_delta_rule_is_exact_in_the_plane(n):
    # Width 2: a key is an angle. Errors are trigonometric polynomials of degree 4 at most in each,
    # so the mean over 16 equal angles is the mean over all of them; orthonormal values stand for
    # independent ones.
    angles = np.stack(np.meshgrid(*[np.arange(16) * np.pi / 8] * n, indexing="ij"), axis=-1)
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(-1, n, 2)
    values = np.broadcast_to(np.eye(n), (len(keys), n, n))
    errors = memory.relative_error(memory.read_delta(keys, values, keys), values).mean(axis=0)
    assert np.allclose(errors[::-1], memory.delta_error(n, 2), atol=1e-12)  # by age


def test_the_delta_rule_forgets_completely():
    errors = memory.delta_error(2000, 16)
    assert errors[0] == 0.0 and (np.diff(errors) > -1e-12).all()
    assert np.isclose(errors[-1], 2.0, atol=1e-3)  # nothing left of the value, as much noise


@pytest.mark.law("interference.capacity")
@given(n=st.integers(1, 12), d=st.integers(1, 12), seed=seeds)
def test_the_newest_pair_reads_exactly_under_the_delta_rule(n, d, seed):
    rng = np.random.default_rng(seed)
    keys, values = memory.unit_vectors(rng, 2, n, d), rng.standard_normal((2, n, 3))
    out = memory.read_delta(keys, values, keys[:, -1:])
    assert np.allclose(out, values[:, -1:], atol=1e-10)


@pytest.mark.law("interference.capacity")
@given(n=st.integers(1, 12), more=st.integers(0, 6), seed=seeds)
def test_orthonormal_keys_read_exactly_and_only_delta_overwrites(n, more, seed):
    rng = np.random.default_rng(seed)
    keys = memory.orthonormal(rng, 2, n, n + more)
    assert np.allclose(keys @ keys.swapaxes(1, 2), np.eye(n), atol=1e-12)
    old, new = rng.standard_normal((2, 2, n, 5))
    for rule in READS:
        assert np.allclose(read(rule, keys, old, keys), old, atol=1e-12)
    twice = np.concatenate([keys, keys], axis=1), np.concatenate([old, new], axis=1)
    assert np.allclose(read("delta", *twice, keys), new, atol=1e-12)
    assert np.allclose(read("linear", *twice, keys), old + new, atol=1e-12)


@given(n=st.integers(1, 12), d=st.integers(1, 8), seed=seeds)
def test_trained_rules_are_the_memories_of_the_closed_forms(n, d, seed):
    rng = np.random.default_rng(seed)
    keys, values = memory.unit_vectors(rng, 2, n, d), rng.standard_normal((2, n, 3))
    tensors = Tensor(keys), Tensor(keys), Tensor(values)
    for rule in READS:
        out = RULES[rule](None, *tensors).data
        assert np.allclose(out, read(rule, keys, values, keys), atol=1e-8)


@given(n=st.integers(1, 6), d=st.integers(1, 3), seed=seeds)
def test_forward_substitution_solves_its_system_and_knows_its_gradient(n, d, seed):
    rng = np.random.default_rng(seed)
    matrix, values = rng.standard_normal((2, n, n)), rng.standard_normal((2, n, d))
    u = forward_substitution(Tensor(matrix), Tensor(values)).data
    assert np.allclose(u + np.tril(matrix, -1) @ u, values)
    gradcheck(lambda m, v: (forward_substitution(m, v) ** 2).sum(), [matrix, values])


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_query_sees_all_pairs_and_no_other_query(rule):
    task = KeyValueRecall(n_keys=8, n_pairs=6, n_values=4, n_queries=3)
    model = Memory(rule, task, 5, np.random.default_rng(0))
    batch = task.sample(2, np.random.default_rng(1))
    with no_grad():
        before = model(batch.tokens, **batch.model_kwargs()).data
        tokens = batch.tokens.copy()
        tokens[:, -2, 0] = tokens[:, 0, 0]
        other = model(tokens).data
        tokens[:, 0, 1] = (tokens[:, 0, 1] + 1) % 4
        moved = model(tokens).data
    assert np.allclose(before[:, [-3, -1]], other[:, [-3, -1]])
    assert not np.allclose(other[:, -2], moved[:, -2])


def test_every_arm_measures_what_it_says_and_can_be_drawn(tmp_path):
    tiny = {"steps": 2, "trials": 20, "test_sequences": 20, "batch_size": 4}
    outcome = run(Capacity(), seeds=2, overrides=tiny, out=tmp_path, backend="sequential")
    assert not outcome.errors
    for name in Capacity.arms:
        for each in outcome.results[name]:
            assert set(each.measurements) == set(Capacity.measured)
            assert each["error"].shape == (len(PAIRS),)
    assert Capacity().draw(outcome.results).axes
    assert "**v" in Capacity().example(np.random.default_rng(0))


@pytest.mark.slow
def test_trained_softmax_holds_what_addition_does_not():
    settings = Capacity().settings(quick=True)
    trained = {
        name: Capacity().measure(settings[name], seed=0)["trained"] for name in Capacity.arms
    }
    assert trained["softmax"] > 0.95
    assert trained["softmax"] > trained["linear"] + 0.03 > trained["delta"]
    assert Settings().n_pairs == 48
