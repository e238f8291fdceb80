"""What a model without position codes can and cannot know, whatever its weights."""

import numpy as np
import pytest
from hypothesis import assume, given

from tests.nn.small import build, configs, seeds, tokens_for


@pytest.mark.law("position.nope")
@given(configs(positions="none", mask="bidirectional", kinds=["softmax", "softmax1"]), seeds)
def test_without_mask_and_positions_equal_tokens_cannot_be_told_apart(config, seed):
    """So there is nothing for a probe to read, in any layer."""
    model, tokens = build(config, seed), tokens_for(config, seed, 7)
    tokens[:, 5] = tokens[:, 1]
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: "resid" in name)
    for stream in cache.values():
        size = np.abs(stream).max()
        np.testing.assert_allclose(stream[:, 5], stream[:, 1], rtol=0, atol=1e-12 * size)


@pytest.mark.law("position.nope")
@given(configs(positions="none", mask="causal", kinds=["softmax"], norm="layernorm"), seeds)
def test_the_causal_mask_tells_equal_tokens_apart(config, seed):
    """Each averages over another number of tokens."""
    assume(not config.key_bias and not config.sink_logit)
    model, tokens = build(config, seed), tokens_for(config, seed, 7)
    tokens[:, 1] = tokens[:, 5] = 0
    tokens[:, 2:5] = 1 + tokens[:, 2:5] % 6
    _, cache = model.run_with_cache(tokens, "blocks.0.attn.hook_z")
    z = cache["z", 0]
    assert np.abs(z[:, 5] - z[:, 1]).max() > 1e-9
