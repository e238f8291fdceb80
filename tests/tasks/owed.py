"""What every task owes, and what each one must say of itself so that it can be tested: `OWED`.

The tasks are found in the package, not listed here: one without an entry fails.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from minitx import tasks
from minitx.tasks import IGNORE, Batch, Task
from minitx.tasks.bigram import BigramBackcopy
from minitx.tasks.biographies import ANSWERS, Biographies
from minitx.tasks.conflict import MemoryOrContext
from minitx.tasks.decks import DRAWS, Deck
from minitx.tasks.draws import DEMANDS
from minitx.tasks.facts import Facts, RandomLabels
from minitx.tasks.lists import QUERY_POSITIONS, ListQueries
from minitx.tasks.needles import Needles
from minitx.tasks.recall import AssociativeRecall, KeyValueRecall
from minitx.tasks.updates import KeyValueUpdates, UpdateProbe


def every_task() -> list[type[Task]]:
    """All tasks of the package, by name."""
    found = set()
    for module in pkgutil.iter_modules(tasks.__path__, "minitx.tasks."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, Task) and not inspect.isabstract(each):
                found.add(each)
    return sorted(found, key=lambda each: each.__name__)


@dataclass(frozen=True)
class Owed:
    """What a task says of itself.

    Attributes
    ----------
    settings : strategy of tasks
        Small tasks of this class, all settings drawn.
    world : str, optional
        The field that seeds what can be learnt by heart. Nothing may tell the answer before that
        was learnt, so the guessers meet every sequence in a new world.
    answers : function of the task
        The ids that are all equally often the answer; default all of the output's.
    asked : function of the batch -> bool [B, T]
        The positions whose answers are meant; default all that have a target.
    blind : names of `GUESSERS`
        Those that must do no better than chance.
    """

    settings: st.SearchStrategy
    world: str | None = None
    answers: Callable[[Task], Iterable[int]] = lambda task: range(task.out_size)
    asked: Callable[[Batch], np.ndarray] = lambda batch: batch.targets != IGNORE
    blind: tuple[str, ...] = ("nothing", "place", "token", "first")


# What a guesser sees of each position: tokens [B, T, F] -> int [B, T, anything].
GUESSERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "nothing": lambda tokens: np.zeros_like(tokens[..., :1]),
    "place": lambda tokens: np.broadcast_to(
        np.arange(tokens.shape[1])[:, None], (*tokens.shape[:2], 1)
    ),
    "token": lambda tokens: tokens,
    "first": lambda tokens: np.broadcast_to(tokens[:, :1], tokens.shape),
}


# --- settings of each task ------------------------------------------------------------------------


@st.composite
def bigrams(draw):
    n_normal, n_triggers = draw(st.integers(1, 12)), draw(st.integers(0, 3))
    return BigramBackcopy(
        table_seed=draw(st.integers(0, 2**32 - 1)),
        length=draw(st.integers(2, 20)),
        n_normal=n_normal,
        n_triggers=n_triggers,
        successors=draw(st.none() | st.integers(1, n_normal)),
        trigger_share=draw(st.sampled_from([0.0, 0.15, 0.5])) if n_triggers else 0.0,
        bos=draw(st.booleans()),
    )


@st.composite
def needles(draw):
    n_attributes = draw(st.integers(1, 4))
    return Needles(
        n_distractors=draw(st.integers(0, 12)),
        hard_share=draw(st.one_of(st.none(), st.floats(0, 1))),
        hard_differs=draw(st.integers(1, n_attributes)),
        n_attributes=n_attributes,
        n_levels=draw(st.integers(2, 5)),
        n_values=draw(st.integers(1, 5)),
    )


updates = st.builds(
    KeyValueUpdates, n_slots=st.integers(2, 10), n_keys=st.integers(10, 12),
    n_values=st.integers(5, 7), n_queries=st.integers(1, 4), max_updates=st.integers(1, 5),
)  # fmt: skip


@st.composite
def probes(draw):
    stream = draw(updates)
    limit = min(stream.n_slots // 2 + 1, stream.n_values, stream.n_slots - 1)
    return UpdateProbe(
        n_updates=draw(st.integers(1, limit)),
        asks=draw(st.sampled_from(["target", "once"])),
        filler_updates=draw(st.integers(1, 3)),
        stream=stream,
    )


recalls = st.builds(
    KeyValueRecall, n_keys=st.integers(6, 9), n_pairs=st.integers(1, 6), n_values=st.integers(1, 4),
    n_queries=st.integers(1, 5), asks=st.sampled_from(sorted(DEMANDS)),
)  # fmt: skip
associations = st.builds(
    AssociativeRecall, n_keys=st.integers(4, 6), n_values=st.integers(4, 6),
    n_active=st.integers(1, 4), n_pairs=st.integers(4, 9),
)  # fmt: skip
lists = st.builds(
    ListQueries, n_items=st.integers(1, 9), n_values=st.integers(1, 5),
    n_queries=st.integers(1, 4), query_positions=st.sampled_from(sorted(QUERY_POSITIONS)),
    asks=st.sampled_from(sorted(DEMANDS)),
)  # fmt: skip
conflicts = st.builds(
    MemoryOrContext, truth=st.floats(0, 1), closed_share=st.floats(0, 1),
    world_seed=st.integers(0, 99), n_keys=st.just(6), n_values=st.integers(6, 9),
    n_statements=st.integers(1, 5),
    frequencies=st.sampled_from([(1.0,), (9.0, 1.0), (25.0, 5.0, 1.0)]),
)  # fmt: skip
decks = st.builds(
    Deck, draw=st.sampled_from(sorted(DRAWS)), n_items=st.integers(4, 9),
    topic_size=st.integers(1, 4),
)  # fmt: skip
biographies = st.builds(
    Biographies, questions=st.floats(0, 1), answers=st.sampled_from(sorted(ANSWERS)),
    n_people=st.just(120), n_attributes=st.integers(1, 4), n_values=st.integers(2, 12),
    seed=st.integers(0, 999),
)  # fmt: skip
facts = st.builds(
    Facts, index=st.integers(0, 3), n_facts=st.integers(1, 32), n_labels=st.integers(1, 16),
    seed=st.integers(0, 999),
)  # fmt: skip
labels = st.builds(
    RandomLabels, seed=st.integers(0, 999), n_items=st.integers(1, 20), length=st.integers(3, 6),
    n_tokens=st.integers(3, 9), n_labels=st.integers(1, 8),
)  # fmt: skip

OWED: dict[type[Task], Owed] = {
    KeyValueRecall: Owed(recalls),
    AssociativeRecall: Owed(associations),
    ListQueries: Owed(lists),
    Needles: Owed(needles()),
    KeyValueUpdates: Owed(updates),
    UpdateProbe: Owed(probes()),
    MemoryOrContext: Owed(conflicts, world="world_seed"),
    # What a deck's last item says of the next is what the deck is about.
    Deck: Owed(decks, blind=("nothing", "place", "first")),
    Facts: Owed(facts, world="seed"),
    RandomLabels: Owed(labels, world="seed"),
    # Never REFUSE, as long as the answers are true.
    Biographies: Owed(biographies, world="seed", answers=lambda task: range(task.n_values)),
    # The copies; all other tokens are drawn from the table, each from its own row.
    BigramBackcopy: Owed(
        bigrams(),
        world="table_seed",
        answers=lambda task: range(task.first_normal, task.vocab_size),
        asked=lambda batch: batch.info["trigger"],
    ),
}


def owed_by(kind: type[Task]) -> Owed:
    assert kind in OWED, (
        f"{kind.__name__} is not tested for fairness: add it to OWED in {__name__}, "
        "with a strategy that draws its settings"
    )
    return OWED[kind]


# --- the laws -------------------------------------------------------------------------------------


def arrays(batch: Batch) -> dict[str, np.ndarray]:
    """Everything in a batch, by name."""
    given = {"tokens": batch.tokens, "targets": batch.targets, **batch.model_kwargs()}
    return given | {f"info[{name!r}]": array for name, array in batch.info.items()}


def same(one: Batch, two: Batch) -> bool:
    a, b = arrays(one), arrays(two)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def check_ids(task: Task, batch: Batch) -> None:
    """Shapes fit, and every id is one that the model has."""
    B, T = batch.targets.shape
    assert 1 <= T <= task.max_len, f"{T} tokens, but max_len is {task.max_len}"
    assert batch.tokens.min() >= 0 and batch.tokens.max() < task.vocab_size, "unknown token"
    answers = batch.targets[batch.targets != IGNORE]
    assert ((answers >= 0) & (answers < task.out_size)).all(), "a target that is no output"
    for name, array in batch.info.items():
        assert len(array) == B, f"info[{name!r}] must have a row for each sequence"
    if batch.mask is not None:
        assert batch.mask.dtype == bool and batch.mask.shape in ((T, T), (B, T, T))
        at = np.arange(T)
        assert batch.mask[..., at, at].all(), "a position that does not see itself"


def check_draws(task: Task, seed: int) -> None:
    """The same seed gives the same batch, whatever happened in between."""
    first = task.sample(4, np.random.default_rng(seed))
    kept = {name: array.copy() for name, array in arrays(first).items()}
    task.sample(3, np.random.default_rng(seed + 1))
    for array in arrays(first).values():
        if array.flags.writeable:
            array[...] = 0  # what a caller does to a batch must not reach the task
    again = arrays(task.sample(4, np.random.default_rng(seed)))
    assert kept.keys() == again.keys()
    for name in kept:
        assert np.array_equal(kept[name], again[name]), f"{name} differs under the same seed"


def check_words(task: Task, owed: Owed, seed: int) -> None:
    """An example is the same under the same seed, and has its answer marked if it has one."""
    one, two = (task.describe(np.random.default_rng(seed)) for _ in range(2))
    assert one == two, "an example differs under the same seed"
    batch = task.sample(16, np.random.default_rng(seed))
    if owed.asked(batch).any(axis=1).all():
        assert "**" in one, "no answer is marked"


def check_seeds(task: Task) -> None:
    """Other seeds give other batches, and other sequences."""
    batches = [task.sample(8, np.random.default_rng(seed)) for seed in range(4)]
    assert not any(same(batches[0], other) for other in batches[1:]), "seeds change nothing"
    rows = {row.tobytes() for row in batches[0].tokens}
    assert len(rows) > 1, "all sequences of a batch are alike"


def questions(task: Task, owed: Owed, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One question of each of ``n`` sequences: the answers, and what each guesser sees.

    One, because questions of a sequence need not be independent.
    """
    rng = np.random.default_rng(0)
    if owed.world is None:
        batches = [task.sample(n, rng)]
    else:
        worlds = (dataclasses.replace(task, **{owed.world: i}) for i in range(n))
        batches = [world.sample(1, rng) for world in worlds]
    answers, seen = [], {name: [] for name in GUESSERS}
    for batch in batches:
        asked = owed.asked(batch) & (batch.targets != IGNORE)
        rows = np.flatnonzero(asked.any(axis=1))
        score = np.where(asked, rng.random(asked.shape), -1.0)
        at = score.argmax(axis=1)[rows]
        answers.append(batch.targets[rows, at])
        tokens = batch.tokens if batch.tokens.ndim == 3 else batch.tokens[..., None]
        for name, view in GUESSERS.items():
            seen[name].append(view(tokens)[rows, at])
    return np.concatenate(answers), {name: np.concatenate(each) for name, each in seen.items()}


def check_fairness(task: Task, owed: Owed) -> None:
    """Answers are balanced, and no guesser that is blind to the question does better than chance.

    A guesser learns the most frequent answer to what it sees from half of the sequences, and is
    asked about the other half.
    """
    ids = np.array(list(owed.answers(task)))
    answers, seen = questions(task, owed, 1500 if owed.world else 8000)
    assert len(answers) > 1000, f"only {len(answers)} sequences ask anything"
    assert np.isin(answers, ids).all(), "an answer that is not among the declared ones"
    counts = (answers[:, None] == ids).sum(axis=0)
    expected = len(answers) / len(ids)
    chi2, freedom = ((counts - expected) ** 2 / expected).sum(), len(ids) - 1
    assert chi2 <= freedom + 6 * np.sqrt(2 * freedom), f"answers are not balanced: {counts}"
    half, chance = len(answers) // 2, 1 / len(ids)
    for name in owed.blind:
        table: dict[bytes, np.ndarray] = {}
        for view, answer in zip(seen[name][:half], answers[:half], strict=True):
            table.setdefault(view.tobytes(), np.zeros(ids.max() + 1, int))[answer] += 1
        right = [
            view.tobytes() in table and table[view.tobytes()].argmax() == answer
            for view, answer in zip(seen[name][half:], answers[half:], strict=True)
        ]
        limit = chance + 5 * np.sqrt(chance * (1 - chance) / len(right))
        share = np.mean(right)
        assert share <= limit, f"who sees {name} guesses {share:.3f} right; chance is {chance:.3f}"
