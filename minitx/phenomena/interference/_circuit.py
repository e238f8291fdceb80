"""Looking into heads: the recall circuit of `retrieval_heads`, and the one head of `ink`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minitx.autograd import Tensor, no_grad, ops
from minitx.interp import interventions, patching, scores
from minitx.nn.transformer import Transformer
from minitx.tasks import IGNORE, Batch
from minitx.tasks.needles import EASY, HARD, NEEDLE
from minitx.tasks.recall import AssociativeRecall
from minitx.training import Callback, State

Head = tuple[int, int]  # (layer, head)


# ---- training: easy sequences first, and a price on every head


class Curriculum(Callback):
    """Sample from the stage of the task's curriculum that training is in."""

    def __init__(self, task: AssociativeRecall):
        self.stages = task.curriculum()
        self.state: State | None = None

    def on_start(self, state: State) -> None:
        self.state = state

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        done = self.state.step / self.state.steps
        task = next(task for until, task in self.stages if done < until)
        return task.sample(batch_size, rng)


class HeadLasso(Callback):
    """Group lasso: ``Σ_layers λ Σ_heads ‖W_O‖_F`` on the loss, so that idle heads fall to zero.

    (Yuan & Lin 2006. Without it every head of layer 1 becomes an induction head, and taking one
    away shows nothing.)
    """

    def __init__(self, strengths: tuple[float, ...], start: float):
        self.strengths, self.start = strengths, start

    def penalty(self, state: State) -> Tensor | None:
        if state.step < self.start * state.steps or not any(self.strengths):
            return None
        total = None
        for strength, block in zip(self.strengths, state.model.blocks, strict=False):
            heads, width = block.attn.config.n_heads, block.attn.config.head_width
            weight = ops.reshape(block.attn.output.weight, (-1, heads, width))  # [D, H, K]
            sizes = ops.sqrt(ops.sum(weight * weight, axis=(0, 2)) + 1e-12)
            term = strength * ops.sum(sizes)
            total = term if total is None else total + term
        return total


# ---- looking inside


def accuracy(model: Transformer, batch: Batch, hooks: Iterable = ()) -> float:
    """Share of right answers where one is asked for, with or without an intervention."""
    with no_grad():
        logits = model.run_with_hooks(batch.tokens, hooks).data
    asked = batch.targets != IGNORE
    return float((logits[asked].argmax(-1) == batch.targets[asked]).mean())


def head_scores(model: Transformer, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Previous-token and induction score of every head, [L, H] each."""
    with no_grad():
        _, cache = model.run_with_cache(batch.tokens, lambda name: name.endswith("hook_pattern"))
    patterns = [cache["pattern", layer] for layer in range(model.config.n_layers)]
    asked = batch.targets != IGNORE
    values = np.arange(batch.tokens.shape[1]) % 2 == 1  # where the previous token matters
    previous = np.stack([scores.previous_token_score(p, values) for p in patterns])
    induction = np.stack([scores.induction_score(p, batch.tokens, asked) for p in patterns])
    return previous, induction


def summary(model: Transformer, batch: Batch) -> np.ndarray:
    """Accuracy, and the largest previous-token and induction scores. [3]"""
    previous, induction = head_scores(model, batch)
    return np.array([accuracy(model, batch), previous[0].max(), induction[-1].max()])


def without_heads(
    model: Transformer, batch: Batch, previous: Head, induction: Head, how: str = "zero"
) -> dict[str, float]:
    """Accuracy without the one head, the other, their neighbours; and with the pair alone."""
    H = model.config.n_heads
    others = [(0, h) for h in range(H) if (0, h) != previous]
    second = [(induction[0], h) for h in range(H)]
    options: dict[str, Any] = {"how": how}
    if how != "zero":
        with no_grad():
            options["cache"] = model.run_with_cache(batch.tokens, lambda n: n.endswith("hook_z"))[1]

    def without(*heads: Head) -> float:
        return accuracy(model, batch, interventions.ablate_heads(heads, **options))

    def only(*heads: Head) -> float:
        return accuracy(model, batch, interventions.keep_heads(model, heads, **options))

    nothing = float("nan")  # a single layer has no layer 1 and no pair
    deep = model.config.n_layers > 1
    return {
        "no_previous": without(previous),
        "no_other_first": min(without(head) for head in others),
        "no_induction": without(induction) if deep else nothing,
        "no_second": without(*second) if deep else nothing,
        "pair_alone": only(previous, induction) if deep else nothing,
        "wrong_pair": max(only(head, induction) for head in others) if deep else nothing,
    }


def swapped(batch: Batch, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Sequences that end in a query, and the same with two keys exchanged in the context.

    The query's key and another active key trade places everywhere but in the query, so that the
    right answer becomes the other key's value: only who belongs to whom differs.

    Returns
    -------
    clean, corrupted : int [B, T]
    answer, other : int [B]
        The right answers of the two.
    """
    clean = batch.tokens[:, :-1].copy()
    rows = np.arange(len(clean))
    asked, answer = clean[:, -1], batch.tokens[:, -1]
    pairs = batch.tokens.reshape(len(clean), -1, 2)  # [B, pairs, (key, value)]
    # Any other key of the sequence, each active one as likely as it occurs.
    chance = (pairs[:, :, 0] != asked[:, None]).astype(float)
    pick = (rng.random(chance.shape) * chance).argmax(1)
    key, other = pairs[rows, pick, 0], pairs[rows, pick, 1]
    corrupted = clean.copy()
    is_asked, is_key = clean == asked[:, None], clean == key[:, None]
    corrupted[is_asked] = np.broadcast_to(key[:, None], clean.shape)[is_asked]
    corrupted[is_key] = np.broadcast_to(asked[:, None], clean.shape)[is_key]
    corrupted[:, -1] = asked
    return clean, corrupted, answer, other


def along_paths(
    model: Transformer, batch: Batch, previous: Head, induction: Head, rng: np.random.Generator
) -> dict[str, float]:
    """How much of the answer each path from layer 0 to layer 1 brings back, by path patching."""
    names = ("path_keys", "path_pair", "path_queries_values", "path_other")
    if model.config.n_layers < 2:
        return dict.fromkeys(names, float("nan"))
    clean, corrupted, answer, other = swapped(batch, rng)
    rows, heads = np.arange(len(clean)), range(model.config.n_heads)

    def difference(logits: np.ndarray) -> float:
        return float((logits[rows, -1, answer] - logits[rows, -1, other]).mean())

    def path(sender: Head, way: str, receivers: Any = heads) -> float:
        reads = [(induction[0], head, way) for head in receivers]
        result = patching.path_patch(model, clean, corrupted, difference, sender, reads)
        return float(result.recovered)

    return {
        "path_keys": path(previous, "k"),
        "path_pair": path(previous, "k", [induction[1]]),
        "path_queries_values": max(path(previous, "q"), path(previous, "v")),
        "path_other": max(path((0, h), "k") for h in heads if (0, h) != previous),
    }


def example_patterns(
    model: Transformer, batch: Batch, task: AssociativeRecall, *heads: Head, length: int = 24
) -> dict[str, Any]:
    """The first tokens of one sequence in words, and what the given heads look at there."""
    tokens = batch.tokens[:1, :length]
    with no_grad():
        _, cache = model.run_with_cache(tokens, lambda name: name.endswith("hook_pattern"))
    words = [f"v{t}" if t < task.n_values else f"k{t - task.n_values}" for t in tokens[0].tolist()]
    patterns = np.stack([cache["pattern", layer][0, head] for layer, head in heads])
    return {"example_tokens": words, "example_patterns": patterns.astype(float).round(4)}


# ---- one head that looks for a needle


def look(model: Transformer, batch: Batch, chunk: int = 50) -> dict[str, float]:
    """What the last query does, means over sequences: nan where there is no such distractor.

    Returns
    -------
    dict
        accuracy; attention on the ``needle``, and on one ``easy`` and one ``hard`` distractor;
        ``easy_gap`` and ``hard_gap``: how far their scores lie below the needle's (softmax keeps
        differences of scores, so that they are logarithms of ratios of attention).
    """
    right, rows = [], []
    for start in range(0, batch.size, chunk):
        part = batch[start : start + chunk]
        with no_grad():
            logits, cache = model.run_with_cache(
                part.tokens, names_filter=lambda name: name.endswith("attn.hook_pattern")
            )
        right.append(logits.data[:, -1].argmax(axis=-1) == part.targets[:, -1])
        rows.append(np.asarray(cache["blocks.0.attn.hook_pattern"])[:, 0, -1])  # [B, S]
    row, kind = np.concatenate(rows).astype(float), batch.info["kind"]
    needle = row[kind == NEEDLE]  # [B]
    gap = np.log(needle)[:, None] - np.log(np.maximum(row, 1e-30))
    seen = {"accuracy": np.concatenate(right), "needle": needle}
    for name, which in (("easy", EASY), ("hard", HARD)):
        seen |= {name: row[kind == which], f"{name}_gap": gap[kind == which]}
    return {name: float(values.mean()) if values.size else np.nan for name, values in seen.items()}
