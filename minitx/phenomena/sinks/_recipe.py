"""What the sink experiments share: the settings of one training run, the run, and a look at it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitx.autograd import no_grad, ops
from minitx.interp.scores import first_token_share
from minitx.nn.config import TransformerConfig
from minitx.nn.transformer import Transformer
from minitx.optim import SGD, linear_decay
from minitx.tasks.base import Batch
from minitx.tasks.bigram import BigramBackcopy
from minitx.training import fit


@dataclass(frozen=True)
class SinkSettings:
    """One training run on Bigram-Backcopy: attention, task, model, optimiser, measuring."""

    # How scores become weights, and ways for a head to say nothing.
    attention: str = "softmax"
    gate: str = "none"
    key_bias: bool = False
    sink_logit: bool = False
    # The task: 60 normal tokens, 3 triggers. With 0 successors every normal token can follow.
    length: int = 64
    successors: int = 4
    trigger_share: float = 0.15
    bos: bool = True
    # The model: small and plain, so that one head's weights are all there is to explain.
    n_layers: int = 1
    n_heads: int = 1
    d_model: int = 64
    positions: str = "rotary"
    norm: str = "layernorm"
    norm_bias: bool = True
    mlp: str = "none"
    # Training: the rate is constant for 70 % of the steps, then falls linearly to 5 %.
    optimizer: str = "adam"
    lr: float = 1e-2
    weight_decay: float = 0.0
    clip: float = 0.0
    steps: int = 600
    batch_size: int = 32
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

    def config(self, vocab_size: int, max_len: int) -> TransformerConfig:
        """The model: no biases but in the norms, untied output, weights N(0, 0.02²)."""
        return TransformerConfig(
            vocab_size=vocab_size,
            max_len=max_len,
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_layers=self.n_layers,
            positions=self.positions,
            attention=self.attention,
            gate=self.gate,
            key_bias=self.key_bias,
            sink_logit=self.sink_logit,
            norm=self.norm,
            mlp=self.mlp,
            bias=False,
            norm_bias=self.norm_bias,
        )


def train(
    settings: SinkSettings, seed: int, max_len: int | None = None
) -> tuple[Transformer, BigramBackcopy, np.random.Generator]:
    """Train one model. Arms with the same seed share the table, the batches and the first weights.

    Parameters
    ----------
    max_len : int, optional
        Longest sequence that the model will be asked to read later; default the trained length.

    Returns
    -------
    model, task, rng
        `rng` is a stream for measuring, from which training has not drawn.
    """
    init_rng, train_rng, measure_rng = np.random.default_rng(seed).spawn(3)
    task = settings.task(seed)
    model = Transformer(settings.config(task.vocab_size, max_len or task.max_len), rng=init_rng)
    optimizer = settings.optimizer
    if optimizer == "sgd":
        optimizer = SGD(model.parameters(), settings.lr, momentum=0.9)
    fit(
        model,
        task,
        steps=settings.steps,
        batch_size=settings.batch_size,
        lr=settings.lr,
        rng=train_rng,
        optimizer=optimizer,
        betas=(0.9, 0.99),
        weight_decay=settings.weight_decay,
        schedule=linear_decay(start=0.7, end=0.05),
        clip=settings.clip or None,
    )
    return model, task, measure_rng


@dataclass(frozen=True)
class Look:
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


def look(model: Transformer, batch: Batch) -> Look:
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
    return Look(
        layer=layer,
        head=head,
        weights=patterns[layer][:, only],
        values=cache["v", layer][:, :, only],
        losses=losses,
        predicted=logits.data.argmax(axis=-1),
    )
