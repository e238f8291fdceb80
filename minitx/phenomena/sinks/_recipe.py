"""What the sink experiments share: one model on Bigram-Backcopy, and a look at its sink head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitx.autograd import no_grad, ops
from minitx.interp.scores import first_token_share
from minitx.nn.transformer import Transformer
from minitx.phenomena.recipe import Recipe
from minitx.tasks.base import Batch
from minitx.tasks.bigram import BigramBackcopy


@dataclass(frozen=True)
class SinkSettings(Recipe):
    """One head on Bigram-Backcopy: small and plain, so that its weights are all there is to explain.

    No biases but in the norms. The rate is constant for 70 % of the steps, then falls linearly to
    5 %.
    """

    norm_bias: bool | None = True
    lr: float = 1e-2
    schedule: str = "linear_decay"
    floor: float = 0.05
    steps: int = 600
    # The task: 60 normal tokens, 3 triggers. With 0 successors every normal token can follow.
    length: int = 64
    successors: int = 4
    trigger_share: float = 0.15
    bos: bool = True
    # Measuring, on fresh sequences that training never saw.
    eval_sequences: int = 128

    def task(self, seed: int) -> BigramBackcopy:
        """The task; every seed has a bigram table of its own."""
        return BigramBackcopy(
            table_seed=seed,
            length=self.length,
            successors=self.successors or None,
            trigger_share=self.trigger_share,
            bos=self.bos,
        )


@dataclass(frozen=True)
class SinkHead:
    """What the head that sinks most does on one batch.

    Attributes
    ----------
    layer, head : int
        The head with the largest |weight| on the first token over non-trigger queries.
    weights : float [B, 1, T, S]
        Its pattern: the weights as they enter the output.
    values : float [B, T, 1, K]
    losses : float [B, T]
        Cross-entropy at every position, nats.
    predicted : int [B, T]
        The most likely next token.
    """

    layer: int
    head: int
    weights: np.ndarray
    values: np.ndarray
    losses: np.ndarray
    predicted: np.ndarray


def sink_head(model: Transformer, batch: Batch) -> SinkHead:
    """Run the model on a batch and pick the head that puts most on the first token."""
    wanted = ("attn.hook_pattern", "attn.hook_v")
    with no_grad():
        logits, cache = model.run_with_cache(
            batch.tokens, names_filter=lambda name: name.endswith(wanted), **batch.model_kwargs()
        )
        losses = ops.cross_entropy(logits, batch.targets, reduction="none").data
    idle = ~batch.info["trigger"]
    patterns = [cache["pattern", layer] for layer in range(model.config.n_layers)]
    on_first = np.array([first_token_share(np.abs(p), rows=idle) for p in patterns])  # [L, H]
    layer, head = map(int, np.unravel_index(on_first.argmax(), on_first.shape))
    only = slice(head, head + 1)
    return SinkHead(
        layer=layer,
        head=head,
        weights=patterns[layer][:, only],
        values=cache["v", layer][:, :, only],
        losses=losses,
        predicted=logits.data.argmax(axis=-1),
    )
