"""What does a head do with a token that it has seen? It depends on whether it comes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.autograd import no_grad, ops
from minitx.interp.circuits import copying_score, ov_circuit
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import by_arm, claim_line, claims_on, mean, roles, rows
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import train
from minitx.tasks.decks import Deck

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results
    from minitx.nn.transformer import Transformer


@dataclass(frozen=True)
class Settings(Recipe):
    """One layer of four heads, and how the items follow each other."""

    draw: str = "permutation"
    n_layers: int = 1
    steps: int = 400
    batch_size: int = 32
    test_sequences: int = 500


@register
class CopySuppression(Experiment):
    """Predict the next item of a deck: drawn without replacement, by topic, or independently."""

    name = "interference.copy_suppression"
    question = "Does a head copy what it has seen, or suppress it?"
    mechanism = (
        "A head that attends to all earlier tokens alike adds to the logits what its OV circuit "
        "makes of each of them. In a permutation an item never comes again, so the circuit learns "
        "to lower the logit of what it sees: negative eigenvalues. In sequences of a few items "
        "what was seen is likely to return: positive ones. Where items are independent there is "
        "nothing to learn, and the eigenvalues are of either sign. The same head, the same "
        "training; only the statistics of the stream differ."
    )
    source = (
        "Elhage et al. (2021), A Mathematical Framework for Transformer Circuits (copying score); "
        "McDougall et al. (2023), Copy Suppression"
    )
    seconds = 10.0
    Settings = Settings
    quick = {"steps": 200, "test_sequences": 100}

    arms = {
        "permutation": arm(text="every item exactly once: nothing comes again"),
        "topics": arm(draw="topics", text="four items of sixteen: what came comes again"),
        "independent": arm(draw="iid", control=True, text="what came says nothing"),
    }

    measured = {
        "score": "Copying score Σ Re λ / Σ |λ| of W_E W_V W_O W_U over the items, by head",
        "score_max": "The highest of the heads",
        "score_min": "The lowest of the heads",
        "score_abs": "The largest |score| of the heads",
        "p_seen": "Probability given to items already seen, mean over positions 1 to 15",
        "p_seen_uniform": "The same for a uniform guess over all items",
        "circuit": "Mean over heads of the OV circuit [seen, logit] of one model",
    }

    claims = [
        at_most("score_max", -0.9, arm="permutation", text="Every head suppresses what it sees"),
        at_least("score_min", 0.9, arm="topics", text="Every head copies what it sees"),
        at_most(
            "score_abs",
            0.5,
            arm="independent",
            control=True,
            text="Where nothing is to be learned, heads do neither",
        ),
        at_most("p_seen", 0.1, arm="permutation", text="Seen items are hardly predicted again"),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A permutation in words."""
        return Deck().describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train one layer, then read its OV circuits and its predictions."""
        task = Deck(settings.draw)
        model, rng = train(task, settings, seed)
        score = np.atleast_1d(copying_score(*item_circuit(model, task.n_items)))
        batch = task.sample(settings.test_sequences, rng)
        with no_grad():
            p = ops.softmax(model(batch.tokens)).data  # [B, T, V]
        inner = slice(1, task.n_items)  # positions with something seen and something to come
        seen = batch.info["seen"][:, inner]
        return {
            "score": score,
            "score_max": score.max(),
            "score_min": score.min(),
            "score_abs": np.abs(score).max(),
            "p_seen": (p[:, inner] * seen).sum(axis=-1).mean(),
            "p_seen_uniform": seen.mean(),
            "circuit": ov_circuit(*item_circuit(model, task.n_items)).mean(axis=0),
        }

    def draw(self, results: Results) -> Figure:
        """One OV circuit of each arm; below, the scores of all heads and what is predicted."""
        fig, axes = plots.figure(
            mosaic=[list("abc"), list("AAB")], size=(11.0, 7.4), height_ratios=[1.25, 1.0]
        )
        for place, name in zip("abc", results.arms, strict=True):
            _circuit(axes[place], results, name)
        axes["a"].set_ylabel("item seen", fontsize=plots.FONT["label"])
        _scores(axes["A"], results)
        _seen(axes["B"], results)
        low, high = mean(results, "permutation", "score_max"), mean(results, "topics", "score_min")
        return plots.suptitle(
            fig,
            f"Copying score of the heads: at most {low:+.2f} where nothing returns,\n"
            f"at least {high:+.2f} where what was seen returns",
        )


def item_circuit(model: Transformer, n_items: int) -> tuple[np.ndarray, ...]:
    """W_V [H, D, K], W_O [H, K, D] of layer 0, and W_E [n, D], W_U [D, n] of the items.

    Embeddings are centred, as the layer norm before attention centres them; so is what is written,
    by the one before the output.
    """
    W_E, W_U = model.W_E[:n_items], model.W_U[:, :n_items]
    return (
        model.W_V[0],
        model.W_O[0],
        W_E - W_E.mean(axis=1, keepdims=True),
        W_U - W_U.mean(axis=0, keepdims=True),
    )


# ---- the figure


def _circuit(ax: Axes, results: Results, name: str) -> None:
    kind = "control: " if name in results.controls else ""
    plots.label(ax, kind + name, x="logit of item")
    if not results[name]:
        return
    circuit = results[name][0]["circuit"]
    largest = np.abs(circuit).max()
    ax.imshow(circuit, cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
    ax.set_xticks(range(0, len(circuit), 5))
    ax.set_yticks(range(0, len(circuit), 5))


def _scores(ax: Axes, results: Results) -> None:
    """All heads; the claims are about the highest, the lowest or the farthest from nought."""
    heads = {name: scores.ravel() for name, scores in by_arm(results, "score").items()}
    plots.seed_dots(ax, heads, roles=roles(results))
    for row, name in enumerate(heads):
        place = {"axis": "x", "span": (row - 0.42, row + 0.42)}
        for measure in ("score_max", "score_min", "score_abs"):
            claim_line(ax, results, measure, name, **place)
        for each in claims_on(results, "score_abs"):  # the same line on the other side of nought
            if each.claim.arm == name:
                plots.threshold_line(ax, -each.claim.threshold, "at_least", **place)
    ax.axvline(0.0, color="0.4", lw=1.0)
    ax.set_xlim(-1.05, 1.05)
    x = "copying score (-1 suppresses, +1 copies)"
    plots.label(ax, "Every head of every seed", x=x, wrap=60)


def _seen(ax: Axes, results: Results) -> None:
    rows(ax, results, "p_seen", bars=True, limits=(0, 1),
         title="Prediction of seen items", x="probability (line: uniform guess)")  # fmt: skip
    for at, name in enumerate(by_arm(results, "p_seen")):
        uniform = mean(results, name, "p_seen_uniform")
        ax.plot([at - 0.4, at + 0.4], [uniform, uniform], color="black", lw=1.2)
