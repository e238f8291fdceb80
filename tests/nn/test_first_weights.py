"""Models that differ in one part share the first weights of every other."""

import numpy as np
import pytest
from hypothesis import given

from minitx.nn import Transformer, TransformerConfig
from tests.nn.small import seeds

SMALL = TransformerConfig(vocab_size=7, max_len=12, d_model=8, n_heads=2, dtype="float64")

PARTS = [  # what an arm changes, beside a model that it must start equal to
    ({}, {"gate": "head"}),
    ({"gate": "head"}, {"gate": "elementwise"}),
    ({}, {"key_bias": True}),
    ({}, {"key_bias": True, "gate": "head"}),
    ({}, {"sink_logit": True}),
    ({}, {"attention": "softmax1"}),
    ({}, {"mlp": "none"}),
    ({}, {"mlp": "swiglu"}),
    ({}, {"positions": "rotary"}),
    ({}, {"norm": "none"}),
    ({}, {"tied": True}),
    ({}, {"n_layers": 3}),
    ({}, {"out_size": 3}),
]


@given(seed=seeds)
@pytest.mark.parametrize(("one", "other"), PARTS)
def test_models_that_differ_in_one_part_share_all_other_first_weights(one, other, seed):
    ours, theirs = (
        dict(Transformer(SMALL.replace(**c), np.random.default_rng(seed)).named_parameters())
        for c in (one, other)
    )
    shared = [
        name for name in ours.keys() & theirs.keys() if ours[name].shape == theirs[name].shape
    ]
    assert len(shared) >= min(len(ours), len(theirs)) - 4  # two layers' gates, weight and bias
    for name in shared:
        np.testing.assert_array_equal(ours[name].data, theirs[name].data, err_msg=name)
