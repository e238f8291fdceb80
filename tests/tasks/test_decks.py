"""What makes the decks fair: exact permutations and topics, every item equally frequent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.tasks.base import IGNORE
from minitx.tasks.decks import DRAWS, Deck
from tests.tasks.owed import decks


@given(deck=decks, seed=st.integers(0, 999))
def test_items_follow_as_the_draw_says(deck, seed):
    batch = deck.sample(4, np.random.default_rng(seed))
    items = batch.tokens[:, 1:]
    assert (batch.tokens[:, 0] == deck.n_items).all()
    assert np.array_equal(batch.targets[:, :-1], items)
    assert (batch.targets[:, -1] == IGNORE).all()
    for row in items:
        if deck.draw == "permutation":
            assert sorted(row) == list(range(deck.n_items))
        if deck.draw == "topics":
            assert len(set(row)) <= deck.topic_size


@given(deck=decks, seed=st.integers(0, 999))
def test_seen_items_are_those_at_or_before(deck, seed):
    batch = deck.sample(3, np.random.default_rng(seed))
    for b in range(3):
        for t in range(deck.max_len):
            seen = set(batch.tokens[b, 1 : t + 1].tolist())
            assert set(np.flatnonzero(batch.info["seen"][b, t])) == seen


@pytest.mark.parametrize("draw", sorted(DRAWS))
def test_every_item_is_equally_frequent_at_every_place(draw):
    items = Deck(draw, n_items=8).sample(8000, np.random.default_rng(0)).tokens[:, 1:]
    share = (items[:, :, None] == np.arange(8)).mean(axis=0)
    assert np.abs(share - 1 / 8).max() < 0.02  # 8000 draws: sd .0037


def test_train_and_test_streams_share_no_permutation():
    train, test = np.random.default_rng(0).spawn(2)
    seen = {row.tobytes() for row in Deck().sample(2000, train).tokens}
    assert not any(row.tobytes() in seen for row in Deck().sample(2000, test).tokens)


def test_words_and_wrong_settings():
    assert "**i" in Deck().describe(np.random.default_rng(0))
    with pytest.raises(MinitxError, match="Unknown draw"):
        Deck("shuffle")
    with pytest.raises(MinitxError, match="topic_size"):
        Deck(topic_size=17)
