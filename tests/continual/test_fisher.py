"""The Fisher information's diagonal: its definition, and the mistakes that go under its name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.autograd import ops
from minitx.continual import fisher_diagonal
from minitx.errors import MinitxError
from minitx.nn import Linear, Module
from minitx.tasks.base import IGNORE, Batch, join
from minitx.tasks.facts import Facts
from tests.continual.small import small_model

TASK = Facts(n_tasks=1, n_facts=5, n_labels=3, n_symbols=4)
seeds = st.integers(0, 100)


class OneHot(Module):
    """Softmax regression on the token: its Fisher information is known in closed form."""

    def __init__(self, vocab, labels, rng):
        self.vocab = vocab
        self.unembed = Linear(vocab, labels, bias=False, rng=rng, std=1.0, dtype="float64")

    def forward(self, tokens):
        return self.unembed(np.eye(self.vocab)[tokens])


@given(seeds)
def test_softmax_regression_in_closed_form(seed):
    # log p(y|x) = W[y, x] - log Z_x, so E_y[(d/dW[c, x])²] = p_c (1 - p_c) for the token x that came.
    rng = np.random.default_rng(seed)
    model = OneHot(3, 4, rng)
    tokens = rng.integers(3, size=(6, 1))
    fisher = fisher_diagonal(model, Batch(tokens, np.zeros((6, 1), dtype=int)))
    p = np.exp(model.unembed.weight.data)
    p /= p.sum(axis=0)
    share = np.bincount(tokens[:, 0], minlength=3) / 6
    assert np.allclose(fisher["unembed.weight"], share * p * (1 - p), rtol=1e-8)


@given(seeds)
@settings(max_examples=3)
def test_the_exact_one_is_the_mean_of_sampled_ones(seed):
    model = OneHot(2, 3, np.random.default_rng(seed))
    batch = Batch(np.array([[0], [1]]), np.zeros((2, 1), dtype=int))
    many = join([batch] * 400)
    sampled = fisher_diagonal(model, many, "sampled", np.random.default_rng(seed + 1))
    exact = fisher_diagonal(model, batch)
    # Every entry is a mean of 800 squares in [0, 1]: five standard errors are under 0.09.
    for name in exact:
        assert np.abs(sampled[name] - exact[name]).max() < 0.09


def test_the_score_has_mean_zero_under_the_model_itself():
    model = small_model(TASK)
    tokens = TASK.everything().tokens[:1]
    logits = model(tokens).numpy()[0, 2]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    total = {name: np.zeros(q.shape) for name, q in model.named_parameters()}
    for label, share in enumerate(p):
        model.zero_grad()
        ops.log_softmax(model(tokens)[:, 2])[0, label].backward()
        for name, q in model.named_parameters():
            if q.grad is not None:
                total[name] += share * q.grad
    assert max(np.abs(value).max() for value in total.values()) < 1e-12


@given(seeds)
@settings(max_examples=5)
def test_it_does_not_hang_on_order_duplication_or_batching(seed):
    model, batch = small_model(TASK), TASK.everything()
    fisher = fisher_diagonal(model, batch)
    order = np.random.default_rng(seed).permutation(batch.size)
    again = fisher_diagonal(model, join([TASK.batch(order), TASK.batch(order)]))
    for name in fisher:
        assert (fisher[name] >= 0).all()
        assert np.allclose(again[name], fisher[name], rtol=1e-9, atol=1e-15)


def test_the_empirical_one_is_something_else():
    model = small_model(TASK)
    exact = fisher_diagonal(model, TASK.everything())
    empirical = fisher_diagonal(model, TASK.everything(), "empirical")
    assert not np.allclose(exact["unembed.weight"], empirical["unembed.weight"], rtol=0.05)


def test_gradients_that_the_model_held_are_gone_and_weights_untouched():
    model = small_model(TASK)
    before = {k: v.copy() for k, v in model.state_dict().items()}
    fisher_diagonal(model, TASK.everything())
    assert all(p.grad is None for p in model.parameters())
    assert all(np.array_equal(v, before[k]) for k, v in model.state_dict().items())


def test_bad_input_is_told_in_a_sentence():
    model, batch = small_model(TASK), TASK.everything()
    with pytest.raises(MinitxError, match="Unknown Fisher kind 'exakt'"):
        fisher_diagonal(model, batch, "exakt")
    with pytest.raises(MinitxError, match="needs a generator"):
        fisher_diagonal(model, batch, "sampled")
    with pytest.raises(MinitxError, match="no targets"):
        fisher_diagonal(model, Batch(batch.tokens, np.full_like(batch.targets, IGNORE)))
