"""Every public function that takes ids: any integer dtype, and nothing outside of the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

import minitx as tx
from minitx import interp, nn
from minitx.autograd import ops
from minitx.continual import fisher_diagonal
from minitx.tasks.base import IGNORE, Batch
from minitx.training import accuracy, answers, correct

V, T, B = 300, 6, 2
INTEGERS = [np.dtype(c) for c in "bBhHiIlL"]  # int8 to uint64
IDS = np.random.default_rng(0).integers(0, 100, (B, T))  # these fit into int8 too


def model_of(**settings) -> nn.Transformer:
    config = {"vocab_size": V, "max_len": 12, "d_model": 8, "n_heads": 2, "init_std": 0.7}
    return nn.Transformer(tx.TransformerConfig(**config | settings), np.random.default_rng(1))


MODEL = model_of()
CACHE = MODEL.run_with_cache(IDS)[1]
TABLE = np.random.default_rng(2).standard_normal((V, 4))
LOGITS = np.random.default_rng(3).standard_normal((B, T, V))
PATTERN = CACHE["pattern", 0]
SECOND = np.eye(T, dtype=bool)[1]


def batch_of(ids, targets=IDS):
    return Batch(ids, targets)


def small_fisher(tokens, targets):
    model = model_of(vocab_size=V, d_model=2, n_heads=1, n_layers=0)
    return fisher_diagonal(model, Batch(tokens[:1], targets[:1]), "empirical")["unembed.weight"]


def metric(logits):
    return float(logits[0, -1, 3])


# Ids of the vocabulary: each place takes them and gives an array.
OF_THE_VOCABULARY = {
    "model": lambda ids: MODEL(ids).data,
    "model, fused features": lambda ids: MODEL(ids[:, :, None]).data,
    "model, cache": lambda ids: MODEL(ids, cache=nn.KVCache(MODEL)).data,
    "generate": lambda ids: MODEL.generate(ids, 4),
    "sampled": lambda ids: MODEL.generate(ids, 4, np.random.default_rng(0), temperature=1.0),
    "run_with_cache": lambda ids: MODEL.run_with_cache(ids)[1]["pattern", 1],
    "run_with_hooks": lambda ids: MODEL.run_with_hooks(ids, []).data,
    "Embedding": lambda ids: MODEL.embed(ids).data,
    "ops.embedding": lambda ids: ops.embedding(ids, TABLE).data,
    "ops.cross_entropy": lambda ids: ops.cross_entropy(LOGITS, ids).data,
    "cross_entropy, none": lambda ids: ops.cross_entropy(LOGITS, ids, reduction="none").data,
    "cross_entropy, sum": lambda ids: ops.cross_entropy(LOGITS, ids, reduction="sum").data,
    "logit_attribution": lambda ids: interp.attribution.logit_attribution(MODEL, CACHE, ids).parts,
    "against": lambda ids: (
        interp.attribution.logit_attribution(MODEL, CACHE, IDS, against=ids).parts
    ),
    "head_scores": lambda ids: interp.heads.head_scores(MODEL, ids)["duplicate"],
    "activation_patch": lambda ids: (
        interp.patching.activation_patch(
            MODEL, ids, IDS[::-1], metric, [("hook_embed", ...)]
        ).values
    ),
    "answers": lambda ids: answers(MODEL, batch_of(ids)),
    "targets of answers": lambda ids: answers(MODEL, batch_of(IDS, ids)),
    "targets of correct": lambda ids: correct(MODEL, batch_of(IDS, ids)),
    "targets of accuracy": lambda ids: np.array(accuracy(MODEL, batch_of(IDS, ids))),
    "fisher": lambda ids: small_fisher(ids, IDS),
    "targets of fisher": lambda ids: small_fisher(IDS, ids),
}

# Whole numbers that are compared, or name a place.
OTHERS = {
    **{
        f"positions of {scheme}, {mask}": lambda ids, scheme=scheme, mask=mask: (
            model_of(positions=scheme, mask=mask, max_len=100)(IDS, positions=ids).data
        )
        for scheme in nn.POSITIONS
        for mask in ("causal", "bidirectional")
    },
    "ALiBi.bias": lambda ids: model_of(positions="alibi").pos_embed.bias(ids, ids),
    "segments": lambda ids: MODEL(IDS, segments=np.sort(ids, axis=1)).data,
    "positions_in_segments": lambda ids: nn.positions_in_segments(np.sort(ids, axis=1)),
    "induction": lambda ids: interp.scores.induction_score(PATTERN, ids),
    "duplicate": lambda ids: interp.scores.duplicate_token_score(PATTERN, ids),
    "retrieval": lambda ids: interp.scores.retrieval_score(PATTERN, ids, ids[:, ::-1], SECOND),
    "positions of accuracy": lambda ids: answers(MODEL, batch_of(IDS), positions=ids[0] % T),
    "knock_out": lambda ids: (
        MODEL.run_with_hooks(IDS, interp.interventions.knock_out(0, ids[:, :2] % T)).data
    ),
}


@pytest.mark.parametrize("place", [*OF_THE_VOCABULARY, *OTHERS])
def test_any_integer_dtype_gives_the_same_answer(place):
    function = (OF_THE_VOCABULARY | OTHERS)[place]
    wanted = function(IDS.astype(np.int64))
    for dtype in INTEGERS:
        np.testing.assert_array_equal(function(IDS.astype(dtype)), wanted, err_msg=str(dtype))


@pytest.mark.parametrize("wrong", [-1, V, -V, V + 1000])
@pytest.mark.parametrize("place", OF_THE_VOCABULARY)
def test_an_id_outside_of_the_vocabulary_is_named(place, wrong):
    ids = IDS.copy()
    ids[0, 2] = wrong
    if place == "head_scores":
        ids = ids[:1]
    with pytest.raises(tx.MinitxError, match=rf"{wrong} "):
        OF_THE_VOCABULARY[place](ids)


def test_the_mark_of_no_target_is_no_token():
    ids = np.full((B, T), IGNORE)
    for name in ("logit_attribution", "against", "model", "ops.embedding"):
        with pytest.raises(tx.MinitxError, match="-100"):
            OF_THE_VOCABULARY[name](ids)


@pytest.mark.parametrize("score", ["first_token_share", "sink_rate", "value_drain"])
@pytest.mark.parametrize("position", [-1, T, 1.0])
def test_a_key_is_counted_from_the_start(score, position):
    given = CACHE["v", 0] if score == "value_drain" else PATTERN
    with pytest.raises(tx.MinitxError, match="0 to 5"):
        getattr(interp.scores, score)(given, position=position)


# --- masks --------------------------------------------------------------------------------------

SEES = np.tri(T, dtype=bool)

MASKED = {
    "model": lambda mask: MODEL(IDS, mask=mask),
    "model, a mask a sequence": lambda mask: MODEL(IDS, mask=np.stack([mask, mask])),
    "batch": lambda mask: accuracy(MODEL, Batch(IDS, IDS, mask=mask)),
    "softmax": lambda mask: ops.softmax(PATTERN, mask=mask),
    "attention": lambda mask: ops.attention(*[np.ones((B, T, 2, 4))] * 3, mask=mask),
    "where": lambda mask: ops.where(mask, np.ones((T, T)), 0.0),
    "ablate": lambda mask: MODEL.run_with_hooks(
        IDS, interp.interventions.ablate("blocks.0.hook_resid_pre", np.stack([mask[-1], mask[0]]))
    ),
    "knock_out": lambda mask: MODEL.run_with_hooks(IDS, interp.interventions.knock_out(0, mask)),
    "attention_to": lambda mask: interp.scores.attention_to(PATTERN, mask),
    "rows": lambda mask: interp.scores.entropy(PATTERN, mask[2]),
    "rows of head_scores": lambda mask: interp.heads.head_scores(MODEL, IDS, rows=mask[2]),
    "needle": lambda mask: interp.scores.retrieval_score(PATTERN, IDS, IDS, mask[2]),
    "positions of accuracy": lambda mask: accuracy(MODEL, batch_of(IDS), positions=mask[:B]),
}
NOT_BOOL = {
    "0 and 1": SEES.astype(int),
    "uint8": SEES.astype(np.uint8),
    "floats": SEES.astype(float),
    "to be added": np.where(SEES, 0.0, -np.inf),
}


@pytest.mark.parametrize("kind", NOT_BOOL)
@pytest.mark.parametrize("place", MASKED)
def test_a_mask_is_bool_or_refused(place, kind):
    MASKED[place](SEES)
    with pytest.raises(tx.MinitxError):
        MASKED[place](NOT_BOOL[kind])
