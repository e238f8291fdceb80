"""Heads built by hand, whose scores are known exactly, in a real model.

Layer 0: head 0 looks at the previous token and writes it down, head 1 parks on the first position.
Layer 1: head 0 finds what followed the same token before and copies it, head 1 does nothing.
"""

import math

import numpy as np
import pytest

from minitx.interp import attribution, circuits, heads, patching, scores
from minitx.interp.interventions import ablate_heads, keep_heads, knock_out
from minitx.nn import Transformer, TransformerConfig
from minitx.training import fit

N = 6  # tokens 1 ... N, each twice, after a start token 0
V, T = N + 1, 2 * N + 1
SHARP = 1000.0  # score of a match against 0: exp(-1000) is exactly 0 in float64
TOKEN, PLACE, BEFORE = slice(0, V), slice(V, V + T), slice(V + T, 2 * V + T)  # parts of the stream


@pytest.fixture(scope="module")
def model():
    config = TransformerConfig(
        vocab_size=V, max_len=T, d_model=2 * V + T, n_heads=2, n_layers=2, d_head=T, mlp="none",
        norm="none", bias=False, final_norm=False, dtype="float64",
    )  # fmt: skip
    model = Transformer(config, np.random.default_rng(0))
    model.flat[:] = 0
    model.W_E[:, TOKEN] = np.eye(V)
    model.W_pos[:, PLACE] = np.eye(T)
    model.W_U[TOKEN] = np.eye(V)
    sharp = SHARP * math.sqrt(T)
    first, second = model.blocks[0].attn, model.blocks[1].attn
    first.W_Q[0, PLACE] = sharp * np.eye(T)
    first.W_K[0, PLACE] = np.eye(T, k=1)  # the key at s answers the query at s + 1
    first.W_V[0, TOKEN, :V] = first.W_O[0, :V, BEFORE] = np.eye(V)
    first.W_Q[1, PLACE, 0] = sharp
    first.W_K[1, PLACE, 0] = np.eye(T)[0]
    first.W_V[1, PLACE] = np.eye(T) - np.diag(np.eye(T)[0])  # the first position has no value
    second.W_Q[0, TOKEN, :V] = sharp * np.eye(V)
    second.W_K[0, BEFORE, :V] = np.eye(V)
    second.W_V[0, TOKEN, :V] = second.W_O[0, :V, TOKEN] = np.eye(V)
    second.W_O[0] *= 10
    return model.eval()


@pytest.fixture(scope="module")
def tokens():
    """The start token, then all others in random order, twice: in the second half each recurs."""
    rng = np.random.default_rng(1)
    half = np.array([1 + rng.permutation(N) for _ in range(5)])
    return np.concatenate([np.zeros((5, 1), dtype=int), half, half], axis=1)


def test_scores_are_exactly_one_for_the_heads_that_do_it(model, tokens):
    table = heads.head_scores(model, tokens, [*heads.PATTERN_SCORES, "copying", "drain"])
    assert table["previous"][0, 0] == 1.0
    assert table["first"][0, 1] == table["sink_rate"][0, 1] == 1.0
    assert table["induction"][1, 0] == 1.0
    assert table["drain"][0, 1] == 0.0
    assert table["copying"].tolist() == [[0, 0], [1, 0]]
    assert table["entropy"][0].tolist() == [0, 0]
    assert table["rank"][0, 1] == pytest.approx(1, abs=1e-6)
    # The idle head looks evenly at all that it sees.
    visible = np.arange(2, T + 1)
    assert table["previous"][1, 1] == pytest.approx((1 / visible).mean())
    assert table["entropy"][1, 1] == pytest.approx(np.log(visible).mean())
    assert table["duplicate"][1, 1] == pytest.approx((1 / np.arange(N + 2, T + 1)).mean())
    # And no head does another's work.
    assert table["previous"][0, 1] == 1 / (T - 1)  # the one query whose previous token is the first
    assert table["induction"][0, 0] == 0.0


def test_retrieval_score_of_the_induction_head(model, tokens):
    _, cache = model.run_with_cache(tokens)
    needle = np.zeros((5, T), dtype=bool)
    needle[:, 2 : N + 1] = True
    outputs = np.roll(tokens, -1, axis=1)
    got = scores.retrieval_score(cache["pattern", 1], tokens, outputs, needle)
    assert got[0] == 1.0
    assert scores.retrieval_score(cache["pattern", 0], tokens, outputs, needle)[1] == 0.0


def right(logits, tokens):
    """Share of right next tokens in the second half."""
    return (logits[:, N + 1 : -1].argmax(-1) == tokens[:, N + 2 :]).mean()


def test_the_pair_is_necessary_and_sufficient(model, tokens):
    def after(hooks):
        return right(model.run_with_hooks(tokens, hooks).data, tokens)

    assert after([]) == after(keep_heads(model, [(0, 0), (1, 0)])) == 1.0
    assert after(ablate_heads([(0, 1), (1, 1)])) == 1.0
    assert after(ablate_heads([(0, 0)])) < 0.5
    assert after(ablate_heads([(1, 0)])) == 0.0
    assert after(keep_heads(model, [(0, 1), (1, 0)])) < 0.5
    pairs = [(t, t - 1) for t in range(1, T)]
    assert after(knock_out(0, pairs, heads=[0])) < 0.5
    assert after(knock_out(0, pairs, heads=[1])) == 1.0


def test_path_patching_finds_the_keys_and_nothing_else(model, tokens):
    clean = tokens[:, : N + 2]  # ends in the first token again
    a, b = clean[:, 1], clean[:, 3]
    corrupted = clean.copy()
    corrupted[:, 1], corrupted[:, 3] = b, a
    rows = np.arange(len(clean))
    answer, other = clean[:, 2], clean[:, 4]

    def difference(logits):
        return (logits[rows, -1, answer] - logits[rows, -1, other]).mean()

    def path(sender, *receivers):
        result = patching.path_patch(model, clean, corrupted, difference, sender, list(receivers))
        assert result.clean == pytest.approx(10) and result.corrupted == pytest.approx(-10)
        return float(result.recovered)

    assert path((0, 0), (1, 0, "k")) == pytest.approx(1)
    for other_path in ((0, 0), (1, 0, "q")), ((0, 0), (1, 0, "v")), ((0, 1), (1, 0, "k")):
        assert path(*other_path) == pytest.approx(0)
    assert path((0, 0), (1, 1, "k")) == pytest.approx(0)
    # Activation patching agrees on which heads carry it.
    by_head = patching.patch_heads(model, clean, corrupted, difference).recovered
    np.testing.assert_allclose(by_head, [[1, 0], [1, 0]], atol=1e-9)
    by_pattern = patching.patch_pattern(model, clean, corrupted, difference).recovered
    np.testing.assert_allclose(by_pattern, [[0, 0], [1, 0]], atol=1e-9)
    by_place = patching.patch_resid_pre(model, clean, corrupted, difference).recovered
    # Before layer 1 the two places that were exchanged carry half each: the values after the keys.
    expected = np.zeros((2, N + 2))
    expected[0, [1, 3]] = expected[1, [2, 4]] = 0.5
    np.testing.assert_allclose(by_place, expected, atol=1e-9)


def test_attribution_gives_the_answer_to_the_induction_head(model, tokens):
    _, cache = model.run_with_cache(tokens)
    following = np.roll(tokens, -1, axis=1)
    parts = attribution.logit_attribution(model, cache, following, per_head=True)
    assert parts.labels == ["embed", "pos_embed", "L0H0", "L0H1", "L1H0", "L1H1"]
    np.testing.assert_allclose(parts["L1H0"][:, N + 1 : -1], 10)
    for label in ("embed", "pos_embed", "L0H0", "L0H1", "L1H1"):
        np.testing.assert_allclose(parts[label][:, N + 1 : -1], 0, atol=1e-12)
    lens = attribution.logit_lens(model, cache)
    assert right(lens[1], tokens) == 0.0 and right(lens[2], tokens) == 1.0


def test_composition_singles_out_the_pair(model):
    W = [model.W_Q[1], model.W_K[1], model.W_V[1], model.W_O[1]]
    scores_k = circuits.composition_scores("K", model.W_V[0], model.W_O[0], *W)
    # All of what the previous-token head writes is read by the induction head's keys: V equal
    # directions, so that |AB| / |A||B| = √V / (√V √V).
    np.testing.assert_allclose(scores_k, [[1 / math.sqrt(V), 0], [0, 0]], atol=1e-12)
    assert not circuits.composition_scores("Q", model.W_V[0], model.W_O[0], *W).any()
    qk = circuits.qk_circuit(model.W_Q[1, 0], model.W_K[1, 0])
    np.testing.assert_allclose(qk[TOKEN, BEFORE], SHARP * math.sqrt(T) * np.eye(V))
    ov = circuits.ov_circuit(model.W_V[1, 0], model.W_O[1, 0], model.W_E, model.W_U)
    np.testing.assert_allclose(ov, 10 * np.eye(V))


def test_scores_are_recorded_during_training(tokens):
    config = TransformerConfig(vocab_size=V, max_len=T, d_model=8, n_heads=2, n_layers=1)
    model = Transformer(config, np.random.default_rng(0))

    class Batch:
        def __init__(self):
            self.tokens, self.targets = tokens, np.roll(tokens, -1, axis=1)

        def model_kwargs(self):
            return {}

    curve = heads.score_curve(tokens, 2, ["previous", "first"], loss=lambda state: state.loss)
    fit(model, lambda size, rng: Batch(), 4, rng=np.random.default_rng(0), callbacks=[curve])
    assert curve.steps.tolist() == [0, 2, 4]
    assert curve["previous"].shape == curve["first"].shape == (3, 1, 2)
    now = heads.head_scores(model, tokens, ["previous"])["previous"]
    np.testing.assert_array_equal(curve["previous"][-1], now)
    assert curve["loss"].shape == (3,)
