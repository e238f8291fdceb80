"""What makes Bigram-Backcopy fair: the rule holds everywhere, counts and entropies are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.bigram import BOS, BigramBackcopy
from tests.tasks.owed import bigrams

seeds = st.integers(0, 2**32 - 1)


@given(bigrams(), seeds)
def test_every_token_follows_the_rule(task, seed):
    batch = task.sample(8, np.random.default_rng(seed))
    tokens, targets = batch.tokens, batch.targets
    assert tokens.shape == targets.shape == (8, task.length)
    assert np.array_equal(tokens[:, 1:], targets[:, :-1])
    first = tokens[:, 0]
    assert (first == BOS).all() if task.bos else (first >= task.first_normal).all()
    assert (tokens[:, 1:] != BOS).all() and targets.max() < task.vocab_size
    trigger = task.is_trigger(tokens)
    # After a trigger comes the token before it, which is normal: no trigger after a trigger.
    rows, at = np.nonzero(trigger)
    assert (at >= (2 if task.bos else 1)).all()
    assert np.array_equal(targets[rows, at], tokens[rows, at - 1])
    assert (targets[rows, at] >= task.first_normal).all()
    # Everywhere else the next token is one that the table allows.
    table = task.table()
    assert (table[tokens[~trigger], targets[~trigger]] > 0).all()
    assert np.array_equal(batch.info["trigger"], trigger)
    assert np.array_equal(batch.info["normal"], tokens >= task.first_normal)


@given(bigrams())
def test_rows_are_distributions_with_exact_counts(task):
    table = task.table()
    normal = table[task.first_normal :]
    np.testing.assert_allclose(normal.sum(axis=1), 1.0)
    successors = (normal[:, task.first_normal :] > 0).sum(axis=1)
    assert (successors == (task.successors or task.n_normal)).all()
    np.testing.assert_allclose(normal[:, 1 : task.first_normal].sum(axis=1), task.trigger_share)
    assert (table[:, BOS] == 0).all()
    assert (table[1 : task.first_normal] == 0).all()


@given(seeds, st.integers(0, 100))
def test_train_and_test_streams_never_share_a_draw(seed, table_seed):
    task = BigramBackcopy(table_seed=table_seed)
    train, test = np.random.default_rng(seed).spawn(2)
    seen = {row.tobytes() for _ in range(4) for row in task.sample(32, train).tokens}
    new = {row.tobytes() for row in task.sample(128, test).tokens}
    assert len(seen) == len(new) == 128 and not seen & new


@pytest.mark.parametrize("successors", [4, None])
def test_streams_follow_the_table_and_its_entropy(successors, rng):
    task = BigramBackcopy(successors=successors)
    batch = task.sample(3000, rng)
    table, entropy = task.table(), task.entropy()
    current, following = batch.tokens[batch.info["normal"]], batch.targets[batch.info["normal"]]
    counts = np.zeros_like(table)
    np.add.at(counts, (current, following), 1)
    total = counts.sum(axis=1, keepdims=True)
    expected = total * table
    # Pearson's chi-square over all cells, within five standard deviations of its mean.
    cells = expected > 0
    chi2 = ((counts - expected)[cells] ** 2 / expected[cells]).sum()
    freedom = cells[task.first_normal :].sum() - task.n_normal
    assert abs(chi2 - freedom) < 5 * np.sqrt(2 * freedom)
    surprise = -np.log(table[current, following])
    standard_error = surprise.std() / np.sqrt(surprise.size)
    assert abs(surprise.mean() - entropy[current].mean()) < 5 * standard_error
    assert entropy[BOS] == pytest.approx(np.log(60)) and (entropy[1:4] == 0).all()


def test_where_triggers_stand_does_not_give_the_answer_away(rng):
    """The copied token is as good as uniform over positions: position alone predicts nothing."""
    task = BigramBackcopy()
    batch = task.sample(4000, rng)
    late = batch.info["trigger"][:, 40:]
    answers = batch.targets[:, 40:][late]
    by_position = [batch.targets[batch.info["trigger"][:, t], t] for t in range(40, 64)]
    best = max(np.bincount(a, minlength=64).max() / len(a) for a in by_position)
    overall = np.bincount(answers, minlength=64).max() / len(answers)
    assert best < overall + 0.08


def test_another_table_seed_gives_another_table():
    assert not np.array_equal(BigramBackcopy(0).table(), BigramBackcopy(1).table())


def test_without_triggers_nothing_is_copied(rng):
    task = BigramBackcopy(trigger_share=0.0)
    assert not task.sample(50, rng).info["trigger"].any()
    assert task.vocab_size == 64 and "no triggers" in task.describe(rng)


def test_description_marks_the_copies(rng):
    text = BigramBackcopy().describe(rng)
    words = text.split(" ...")[0].split()
    marked = [at for at, word in enumerate(words) if word.startswith("**")]
    assert words[0] == "BOS" and marked
    for at in marked:
        assert words[at - 1].startswith("!") and words[at].strip("*") == words[at - 2].strip("*")


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"length": 1}, "length 1"),
        ({"successors": 61}, "1 to 60 successors"),
        ({"trigger_share": 1.0}, "got 1.0"),
        ({"n_triggers": 0}, "with 0 triggers"),
    ],
)
def test_impossible_settings_are_refused(settings, match):
    with pytest.raises(MinitxError, match=match):
        BigramBackcopy(**settings)
