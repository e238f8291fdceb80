"""Before any training: whose influence reaches the last output?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.autograd import Tensor
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn import Transformer, TransformerConfig
from minitx.phenomena.figures import by_arm, claim_line, curves
from minitx.plots import figure, label, legend, seed_lines, suptitle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results

DEPTHS = (1, 2, 4, 8, 12)


@dataclass(frozen=True)
class Settings:
    """A model at birth: weights N(0, 1/d), random tokens, no training."""

    mask: str = "causal"
    positions: str = "none"
    residual: bool = True
    length: int = 64
    d_model: int = 64
    n_heads: int = 4
    vocab: int = 64
    sequences: int = 64
    directions: int = 4  # random directions of the last output that are differentiated

    def config(self, n_layers: int) -> TransformerConfig:
        """The model of that depth: pre-LayerNorm, ReLU MLP, no biases."""
        std = self.d_model**-0.5
        return TransformerConfig(
            vocab_size=self.vocab,
            max_len=self.length,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_layers=n_layers,
            positions=self.positions,
            mask=self.mask,
            residual=self.residual,
            mlp="relu",
            bias=False,
            init_std=std,
        )


def influence(
    model: Transformer, tokens: np.ndarray, directions: int, rng: np.random.Generator
) -> np.ndarray:
    """Mean size of the derivative of the last output with respect to each input embedding.

    Random unit directions u of the last position's logits are differentiated: the norm of
    ``d(u · logits_T) / d x_i``, averaged over u and sequences.

    Parameters
    ----------
    tokens : int [B, T]
    directions : int
        Number of directions.

    Returns
    -------
    float64 [T]
    """
    total = np.zeros(tokens.shape[1])
    for _ in range(directions):
        leaf: list[Tensor] = []

        def as_leaf(embedded: Tensor, hook: Any, leaf: list[Tensor] = leaf) -> Tensor:
            leaf.append(Tensor(embedded.data.copy(), requires_grad=True))
            return leaf[0]

        logits = model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", as_leaf)])
        direction = rng.standard_normal(logits.shape[-1]).astype(logits.dtype)
        (logits[:, -1] * (direction / np.linalg.norm(direction))).sum().backward()
        total += np.linalg.norm(leaf[0].grad.astype(np.float64), axis=-1).mean(axis=0)
    return total / directions


def residual_rollout(length: int, alpha: float, depth: int) -> np.ndarray:
    """The last row of ``N^depth`` for ``N = (1 - alpha) I + alpha M``, ``M_ij = 1/i for j <= i``.

    Uniform causal attention beside a residual stream, with everything else left out: a walk that
    stays where it is with probability ``1 - alpha`` or jumps to an earlier token. By the binomial
    theorem ``N^H = sum_k C(H, k) (1 - alpha)^(H - k) alpha^k M^k`` (after Wu et al., 2025).

    Returns
    -------
    float64 [length], sums to 1
    """
    uniform = np.tri(length) / np.arange(1, length + 1)[:, None]
    step = (1 - alpha) * np.eye(length) + alpha * uniform
    return np.linalg.matrix_power(step, depth)[-1]


@register
class InitBias(Experiment):
    """Influence of each input on the last output, by depth, at random weights."""

    name = "position.init_bias"
    question = "Does a transformer favour the ends of its context before it has learnt anything?"
    mechanism = (
        "Under a causal mask early tokens are seen by more queries, and with every layer more paths "
        "lead from them to the last output: primacy, which grows with depth. The residual stream "
        "carries the last token straight to its own output: recency, a spike. Take away the mask and "
        "primacy goes; take away the residual stream and recency goes. None of it is learnt."
    )
    source = (
        "Wu et al. (2025), On the Emergence of Position Bias in Transformers; Barbero et al. (2024), "
        "Transformers need glasses!"
    )
    seconds = 30.0
    Settings = Settings
    quick = {"sequences": 16, "directions": 2}

    arms = {
        "causal": arm(text="causal mask, residual stream"),
        "no mask": arm(mask="bidirectional", control=True, text="every query sees every token"),
        "no residual": arm(residual=False, control=True, text="sublayers replace the stream"),
        "ALiBi": arm(positions="alibi", text="a penalty on distance spreads recency"),
    }

    measured = {
        "curve": (
            "mean over directions and sequences of ‖d(u · logits_T)/d x_i‖, divided by its mean over "
            "i, by depth: float [depths, T]"
        ),
        "first_by_depth": "influence of the first token / mean of the middle half, by depth",
        "last_by_depth": "influence of the last token / mean of the middle half, by depth",
        "first_to_middle": "first / middle at 12 layers",
        "last_to_middle": "last / middle at 12 layers",
        "late_to_middle": (
            "mean of the last tenth of positions, the last token left out, / middle, at 12 layers"
        ),
    }

    claims = [
        at_least(
            "first_to_middle", 1.7, arm="causal", text="Primacy from mask × depth (12 layers)"
        ),
        at_least("last_to_middle", 5.0, arm="causal", text="Recency from the residual stream"),
        at_most(
            "first_to_middle", 1.2, arm="no mask", control=True, text="No primacy without mask"
        ),
        at_most(
            "last_to_middle",
            0.2,
            arm="no residual",
            control=True,
            text="No recency without residual",
        ),
        at_least(
            "late_to_middle",
            2.0,
            arm="ALiBi",
            text="With a penalty on distance recency reaches beyond the last token",
        ),
    ]

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Build untrained models of each depth and differentiate their last output."""
        init_rng, data_rng, direction_rng = np.random.default_rng(seed).spawn(3)
        tokens = data_rng.integers(settings.vocab, size=(settings.sequences, settings.length))
        curves = np.array(
            [
                influence(
                    Transformer(settings.config(depth), rng=init_rng),
                    tokens,
                    settings.directions,
                    direction_rng,
                )
                for depth in DEPTHS
            ]
        )  # [depths, T]
        quarter, tenth = settings.length // 4, max(settings.length // 10, 2)
        middle = curves[:, quarter:-quarter].mean(axis=1)
        # Without a residual stream what reaches the middle may underflow to 0: then the first
        # token's share of the rest is what can still be told, and a tiny floor keeps ratios finite.
        middle = np.maximum(middle, np.finfo(np.float32).tiny)
        late = curves[:, -tenth:-1].mean(axis=1)
        return {
            "curve": curves / curves.mean(axis=1, keepdims=True),
            "first_by_depth": curves[:, 0] / middle,
            "last_by_depth": curves[:, -1] / middle,
            "first_to_middle": curves[-1, 0] / middle[-1],
            "last_to_middle": curves[-1, -1] / middle[-1],
            "late_to_middle": late[-1] / middle[-1],
        }

    def draw(self, results: Results) -> Figure:
        """Influence by position at 12 layers, and both ends against depth."""
        fig, (curve, first, last) = figure(ncols=3, size=(14, 4.4))
        looks = {"no mask": "control", "no residual": "comparison"}
        for name, runs in by_arm(results, "curve").items():
            x = 1 + np.arange(runs.shape[-1])
            look = looks.get(name, 0 if name == "causal" else 2)
            seed_lines(curve, x, runs[:, -1], name, look, markers=False, thin=False)
            looks[name] = look
        curves(first, results, "first_by_depth", DEPTHS, looks=looks, thin=True)
        curves(last, results, "last_by_depth", DEPTHS, looks=looks, thin=True)
        for ax, limits in ((curve, (1e-2, 1e2)), (first, (0.3, 1e3)), (last, (1e-3, 30))):
            ax.set(yscale="log", ylim=limits)
        for ax, measure in ((first, "first_to_middle"), (last, "last_to_middle")):
            ax.axhline(1, color="0.6", lw=1)
            ax.set_xticks(DEPTHS)
            claim_line(ax, results, measure, "causal")
        title = "Influence on the last output, 12 layers"
        label(curve, title, x="input position", y="influence / mean")
        label(first, "Primacy grows with depth, under a mask", x="layers", y="first / middle")
        label(last, "Recency comes with the residual stream", x="layers", y="last / middle")
        legend(curve, loc="upper center")
        return suptitle(fig, "Position bias before any training")
