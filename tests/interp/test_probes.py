"""Probes: closed forms, optimality, shuffled control, held-out groups, amnesic projection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError, ShapeError
from minitx.interp import probes

seeds = st.integers(0, 2**32 - 1)


def frozen(x):
    x.setflags(write=False)
    return x


@given(seeds, st.integers(2, 30), st.integers(1, 5), st.floats(1e-3, 100))
def test_ridge_is_the_closed_form(seed, n, f, penalty):
    rng = np.random.default_rng(seed)
    x, y = frozen(rng.normal(size=(n, f)) + 5), frozen(rng.normal(size=(n, 2)))
    fitted = probes.fit_ridge(x, y, penalty)
    xc, yc = x - x.mean(0), y - y.mean(0)
    expected = np.linalg.solve(xc.T @ xc + penalty * np.eye(f), xc.T @ yc)
    np.testing.assert_allclose(fitted.weight, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fitted.predict(x).mean(0), y.mean(0), atol=1e-9)


def test_ridge_without_penalty_is_least_norm_and_fits_a_line(rng):
    x = rng.normal(size=(4, 9))  # fewer samples than features
    y = rng.normal(size=4)
    fitted = probes.fit_ridge(x, y, penalty=0)
    np.testing.assert_allclose(fitted.predict(x)[:, 0], y, atol=1e-9)
    least = np.linalg.pinv(x - x.mean(0)) @ (y - y.mean())
    np.testing.assert_allclose(fitted.weight[:, 0], least, atol=1e-9)
    assert fitted.score(x, y) == pytest.approx(1)
    assert np.isnan(fitted.score(x, np.ones(4)))


def test_r2_is_against_the_mean_of_the_data_scored():
    fitted = probes.RidgeProbe(np.zeros((1, 1)), np.array([1.0]))
    assert fitted.score(np.zeros((2, 1)), [0.0, 2.0]) == 0.0
    assert fitted.score(np.zeros((2, 1)), [1.0, 3.0]) == 1 - 4 / 2


@given(seeds, st.integers(2, 4), st.integers(1, 4), st.floats(1e-3, 1))
def test_logistic_is_at_its_optimum(seed, n_classes, f, penalty):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, f)) * rng.choice([0.01, 1, 100], size=f)
    label = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 40 - n_classes)])
    names = np.array([f"class {i}" for i in range(n_classes)])
    fitted = probes.fit_logistic(frozen(x), frozen(names[label]), penalty)
    # The gradient of mean cross-entropy + λ/2 ‖W·std‖² must vanish (features standardised inside).
    z = fitted.logits(x)
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    error = (p - np.eye(n_classes)[label]) / len(x)
    standard = (x - x.mean(0)) / x.std(0)
    gradient = standard.T @ error + penalty * fitted.weight * x.std(0)[:, None]
    assert np.abs(gradient).max() < 1e-6
    assert np.abs(error.sum(0)).max() < 1e-6
    assert set(fitted.predict(x)) <= set(names)


def test_logistic_scores_separable_classes_and_refuses_nonsense(rng):
    x = rng.normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    assert probes.fit_logistic(x, y).score(x, y) >= 0.95
    constant = np.hstack([x, np.ones((60, 1))])
    assert np.isfinite(probes.fit_logistic(constant, y).weight).all()
    with pytest.raises(MinitxError, match="two classes"):
        probes.fit_logistic(x, np.ones(60))
    with pytest.raises(MinitxError, match="penalty"):
        probes.fit_logistic(x, y, penalty=0)
    with pytest.raises(MinitxError, match="NaN"):
        probes.fit_ridge(np.full((3, 1), np.nan), np.ones(3))
    with pytest.raises(ShapeError, match="samples"):
        probes.fit_ridge(x, y[:-1])


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_a_probe_finds_what_is_there_and_the_control_does_not(kind, rng):
    x = rng.normal(size=(400, 5))
    y = (x @ np.ones(5) > 0).astype(float)
    there = probes.probe(x, y, rng, kind)
    absent = probes.probe(x, rng.permutation(y), rng, kind)
    assert there.selectivity > 0.35
    assert abs(absent.selectivity) < 0.2
    assert abs(there.control - (0.5 if kind == "logistic" else 0)) < 0.15


def test_a_probe_is_scored_on_data_it_has_not_seen(rng):
    # More features than samples: a perfect fit to noise, and nothing held out can be predicted.
    x, y = rng.normal(size=(60, 200)), rng.normal(size=60)
    result = probes.probe(x, y, rng, penalty=1e-6)
    assert result.train_score > 0.99
    assert result.score < 0.3


@given(seeds, st.integers(2, 40), st.floats(0.01, 0.99), st.booleans())
def test_split_is_disjoint_complete_and_keeps_groups(seed, n, share, grouped):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 4, n) if grouped else None
    if grouped and len(np.unique(groups)) < 2:
        with pytest.raises(MinitxError, match="two"):
            probes.split(n, rng, share, groups)
        return
    train, test = probes.split(n, rng, share, groups)
    assert len(train) and len(test)
    assert sorted([*train, *test]) == list(range(n))
    if grouped:
        assert not set(groups[train]) & set(groups[test])


@given(seeds, st.integers(2, 6), st.integers(1, 4))
def test_remove_subspace_leaves_nothing_there_and_the_rest_alone(seed, f, k):
    rng = np.random.default_rng(seed)
    x, mean = frozen(rng.normal(size=(7, f))), rng.normal(size=f)
    directions = frozen(rng.normal(size=(f, k)) * 100)
    left = probes.remove_subspace(x, directions, mean)
    np.testing.assert_allclose((left - mean) @ directions, 0, atol=1e-9)
    # What was taken lies in the span, and taking it again changes nothing.
    projector = directions @ np.linalg.pinv(directions)
    np.testing.assert_allclose((x - left) @ projector, x - left, atol=1e-9)
    np.testing.assert_allclose(probes.remove_subspace(left, directions, mean), left, atol=1e-9)
    one = probes.remove_subspace(x.astype("f"), directions[:, 0])
    assert one.dtype == np.float32


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
def test_amnesic_projection_forgets_its_label_and_keeps_others(kind, rng):
    x = rng.normal(size=(600, 8))
    y, other = (x[:, 0] > 0).astype(int), (x[:, 1] > 0).astype(int)
    directions = probes.amnesic_projection(x, y, kind)
    assert directions.shape[1] <= 3
    np.testing.assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-9)
    left = probes.remove_subspace(x, directions, x.mean(0))
    assert probes.probe(left, y, rng, "logistic").score < 0.62
    assert probes.probe(left, other, rng, "logistic").score > 0.9


def test_amnesic_projection_has_nothing_to_remove_from_noise(rng):
    x, y = rng.normal(size=(5000, 2)), rng.integers(0, 2, 5000)
    assert probes.amnesic_projection(x, y, tolerance=0.05).shape == (2, 0)
    with pytest.raises(MinitxError, match="Known: logistic, ridge"):
        probes.amnesic_projection(x, y, kind="lasso")
