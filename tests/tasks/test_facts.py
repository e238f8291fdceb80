"""Facts and random labels: fixed, fair, never shared between the tasks of a series."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.facts import Facts, RandomLabels

seeds = st.integers(0, 1000)


@given(seeds)
def test_tables_of_a_series_share_no_question(seed):
    tables = [Facts(index=i, seed=seed) for i in range(4)]
    keys = np.concatenate([task.table[0] for task in tables])
    assert len(np.unique(keys, axis=0)) == len(keys) == 4 * 32


@given(seeds)
def test_the_same_seed_gives_the_same_facts_and_another_seed_others(seed):
    again = Facts(seed=seed).table
    assert all(np.array_equal(a, b) for a, b in zip(Facts(seed=seed).table, again, strict=True))
    assert not np.array_equal(Facts(seed=seed).table[0], Facts(seed=seed + 1).table[0])


@given(seeds, st.integers(1, 80))
def test_a_batch_asks_different_facts_and_its_targets_are_the_table(seed, size):
    task = Facts(index=2, seed=seed)
    batch = task.sample(size, np.random.default_rng(seed))
    facts = batch.info["fact"]
    assert len(np.unique(facts)) == len(facts) == min(size, task.n_facts)
    keys, labels = task.table
    assert np.array_equal(batch.tokens[:, :2] - task.n_labels - 1, keys[facts])
    assert (batch.tokens[:, 2] == task.n_labels).all()
    assert np.array_equal(batch.targets[:, 2], labels[facts])
    assert (batch.targets[:, :2] == IGNORE).all()
    assert batch.tokens.max() < task.vocab_size


def test_no_single_symbol_tells_the_label():
    # Guess from the first symbol alone, over many series: little better than chance.
    right = total = 0
    for seed in range(40):
        keys, labels = Facts(n_facts=128, n_tasks=1, seed=seed).table
        for symbol in range(24):
            at = keys[:, 0] == symbol
            rest = labels[at][1:]
            right += (rest == labels[at][:1]).sum()  # guess what one other fact of it says
            total += len(rest)
    assert right / total < 1 / 16 + 0.02


@given(seeds)
def test_random_labels_are_a_function_of_different_strings(seed):
    task = RandomLabels(seed=seed)
    strings, labels = task.table
    assert len(np.unique(strings, axis=0)) == task.n_items
    batch = task.sample(task.n_items, np.random.default_rng(seed))
    assert np.array_equal(np.sort(batch.info["item"]), np.arange(task.n_items))
    assert np.array_equal(batch.targets[:, -1], labels[batch.info["item"]])
    assert (batch.targets[:, :-1] == IGNORE).all()


def test_labels_are_balanced_over_many_tasks():
    labels = np.concatenate([RandomLabels(seed=seed).table[1] for seed in range(100)])
    counts = np.bincount(labels, minlength=8)
    assert np.abs(counts / len(labels) - 1 / 8).max() < 0.02


@pytest.mark.parametrize("task", [Facts(), RandomLabels()])
def test_an_example_has_its_answer_marked(task):
    assert "**label" in task.describe(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Facts(index=4), "index must lie in 0..3"),
        (lambda: Facts(n_symbols=4), "4 symbols make 16"),
        (lambda: RandomLabels(n_tokens=2, length=2), "only 4 strings"),
    ],
)
def test_impossible_settings_are_refused(make, words):
    with pytest.raises(MinitxError, match=words):
        make()
