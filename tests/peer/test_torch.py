"""minitx against PyTorch: the coarse operations and a whole training run. Run with ``-m peer``."""

import numpy as np
import pytest

from minitx.autograd import Tensor, ops

pytestmark = pytest.mark.peer
torch = pytest.importorskip("torch")
F = torch.nn.functional


def both(rng, *shapes):
    """The same float64 leaves twice: minitx's and PyTorch's."""
    arrays = [rng.normal(size=s) for s in shapes]
    ours = [Tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    return ours, theirs


def compare(y, expected, ours, theirs, rng):
    """Values, and gradients for a random upstream gradient."""
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    g = rng.normal(size=y.shape)
    y.backward(g)
    expected.backward(torch.tensor(g))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_activations(rng):
    for name, function in (
        ("gelu", lambda x: F.gelu(x, approximate="tanh")),
        ("silu", F.silu),
        ("relu", F.relu),
    ):
        ours, theirs = both(rng, (4, 7))
        compare(getattr(ops, name)(*ours), function(*theirs), ours, theirs, rng)


def test_norms(rng):
    ours, theirs = both(rng, (3, 4, 8), (8,), (8,))
    compare(ops.layer_norm(*ours), F.layer_norm(theirs[0], (8,), *theirs[1:]), ours, theirs, rng)
    ours, theirs = both(rng, (3, 4, 8), (8,))
    compare(
        ops.rms_norm(*ours, eps=1e-5), F.rms_norm(theirs[0], (8,), theirs[1], eps=1e-5),
        ours, theirs, rng,
    )  # fmt: skip


def test_linear(rng):
    ours, theirs = both(rng, (3, 4, 8), (5, 8), (5,))
    compare(ops.linear(*ours), F.linear(*theirs), ours, theirs, rng)


@pytest.mark.parametrize("causal", [True, False])
def test_attention(rng, causal):
    ours, theirs = both(rng, *[(2, 6, 3, 4)] * 3)
    expected = F.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in theirs), is_causal=causal
    ).transpose(1, 2)
    compare(ops.attention(*ours, causal=causal), expected, ours, theirs, rng)


def test_cross_entropy_with_ignored_targets(rng):
    ours, theirs = both(rng, (6, 5))
    targets = np.array([0, -100, 4, 2, -100, 1])
    compare(
        ops.cross_entropy(ours[0], targets),
        F.cross_entropy(theirs[0], torch.tensor(targets)),
        ours, theirs, rng,
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_ten_steps_of_training_have_the_same_losses(threads):
    from minitx import kernels
    from tests.benchmarks import contenders

    shape, before = (4, 16, 16, 32, 2, 2), kernels.get_threads()
    kernels.set_threads(threads)
    try:
        ours, theirs = (contenders.build(n, shape, 1) for n in ("minitx", "torch_eager"))
        for _ in range(10):
            assert ours().item() == pytest.approx(theirs().item(), abs=1e-4)
    finally:
        kernels.set_threads(before)
