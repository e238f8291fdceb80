"""The same training step in minitx, PyTorch and JAX, each in a process of its own.

``python contenders.py NAME SHAPE THREADS`` builds the model, says so, and obeys lines on its input:
``losses N``, ``run N`` (times of N steps), ``rate`` (its matrix products), ``memory``, ``quit``.
Answers are lines of JSON. A process of its own gives each contender its own peak of memory and its
own threads; ``train_step.py`` sees to it that only one of them works at a time.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import time

import numpy as np

LEARNING_RATE, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
NAMES = {"minitx": "numba", "torch_eager": "torch", "torch_compiled": "torch", "jax": "jax"}


def installed() -> list[str]:
    """Contenders that can run in this Python."""
    return [name for name, module in NAMES.items() if importlib.util.find_spec(module)]


def initial_weights(shape) -> dict[str, np.ndarray]:
    """One set of weights for all contenders, under minitx's names."""
    _, T, V, d, _, L = shape
    rng = np.random.default_rng(0)
    weights = {}

    def matrix(name, *size):
        weights[name] = (0.08 * rng.standard_normal(size)).astype(np.float32)

    def norm(name):
        weights[f"{name}.weight"] = np.ones(d, np.float32)
        weights[f"{name}.bias"] = np.zeros(d, np.float32)

    matrix("embed.weight", V, d)
    matrix("pos_embed.weight", T, d)
    for i in range(L):
        block = f"blocks.{i}"
        norm(f"{block}.ln1")
        for layer in ("query", "key", "value", "output"):
            matrix(f"{block}.attn.{layer}.weight", d, d)
            matrix(f"{block}.attn.{layer}.bias", d)
        norm(f"{block}.ln2")
        for layer, size in (("up", (4 * d, d)), ("down", (d, 4 * d))):
            matrix(f"{block}.mlp.{layer}.weight", *size)
            matrix(f"{block}.mlp.{layer}.bias", size[0])
    norm("ln_final")
    matrix("unembed.weight", V, d)
    return weights


def batch(shape):
    """Tokens and targets [B, T]: the same batch at every step, so that the loss falls."""
    B, T, V, *_ = shape
    tokens = np.random.default_rng(1).integers(0, V, (2, B, T))
    return tokens[0], tokens[1]


def minitx_step(shape, threads):
    """A function that does one step through the public API and returns the loss."""
    import minitx as tx

    _, T, V, d, H, L = shape
    config = tx.TransformerConfig(
        vocab_size=V, max_len=T, d_model=d, n_heads=H, n_layers=L, positions="learned", mlp="gelu"
    )
    model = tx.Transformer(config, rng=np.random.default_rng(0))
    model.load_state_dict(initial_weights(shape))
    optimiser = tx.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=DECAY
    )
    tokens, targets = batch(shape)

    def step():
        loss = tx.cross_entropy(model(tokens), targets)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step


def torch_step(shape, threads, compiled=False):
    """The same with PyTorch: one product for q, k and v, fused attention, fused AdamW."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    _, T, V, d, H, L = shape

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.output = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            B = len(x)
            q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, H, d // H).permute(2, 0, 3, 1, 4)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.output(z.transpose(1, 2).reshape(B, T, d))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.pos_embed = nn.Embedding(V, d), nn.Embedding(T, d)
            self.blocks = nn.ModuleList(Block() for _ in range(L))
            self.ln_final, self.unembed = nn.LayerNorm(d), nn.Linear(d, V, bias=False)

        def forward(self, tokens):
            x = self.embed(tokens) + self.pos_embed.weight
            for block in self.blocks:
                x = block(x)
            return self.unembed(self.ln_final(x))

    model = GPT()
    weights, state = initial_weights(shape), {}
    for name, value in weights.items():
        state[name.replace(".attn.", ".").replace(".mlp.", ".")] = torch.from_numpy(value)
    for i in range(L):
        for kind in ("weight", "bias"):
            parts = [state.pop(f"blocks.{i}.{n}.{kind}") for n in ("query", "key", "value")]
            state[f"blocks.{i}.qkv.{kind}"] = torch.cat(parts)
    model.load_state_dict(state)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True
    )
    forward = torch.compile(model) if compiled else model
    tokens, targets = (torch.from_numpy(a) for a in batch(shape))

    def step():
        loss = F.cross_entropy(forward(tokens).view(-1, V), targets.view(-1))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    return step


def jax_step(shape, threads):
    """The same with JAX: the whole step in one ``jit``. XLA's own threads cannot be set from here."""
    import jax
    import jax.numpy as jnp

    _, T, _, d, H, L = shape
    weights = {name: jnp.asarray(value) for name, value in initial_weights(shape).items()}
    zeros = {name: jnp.zeros_like(value) for name, value in weights.items()}
    tokens, targets = (jnp.asarray(a) for a in batch(shape))
    causal = jnp.tril(jnp.ones((T, T), bool))

    def norm(w, name, x):
        centred = x - x.mean(-1, keepdims=True)
        y = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return y * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(w, name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def loss_of(w):
        x = w["embed.weight"][tokens] + w["pos_embed.weight"]
        for i in range(L):
            at = f"blocks.{i}.attn"
            h = norm(w, f"blocks.{i}.ln1", x)
            q, k, v = (
                linear(w, f"{at}.{n}", h).reshape(*h.shape[:2], H, d // H)
                for n in ("query", "key", "value")
            )
            scores = jnp.einsum("bthk,bshk->bhts", q, k) * (d // H) ** -0.5
            pattern = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
            z = jnp.einsum("bhts,bshk->bthk", pattern, v).reshape(h.shape)
            x = x + linear(w, f"{at}.output", z)
            h = jax.nn.gelu(linear(w, f"blocks.{i}.mlp.up", norm(w, f"blocks.{i}.ln2", x)))
            x = x + linear(w, f"blocks.{i}.mlp.down", h)
        logits = norm(w, "ln_final", x) @ w["unembed.weight"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
        return -chosen.mean()

    @jax.jit
    def update(w, m, v, t):
        loss, g = jax.value_and_grad(loss_of)(w)
        for name in w:
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * g[name]
            v[name] = BETAS[1] * v[name] + (1 - BETAS[1]) * g[name] ** 2
            rate = LEARNING_RATE / (1 - BETAS[0] ** t)
            spread = jnp.sqrt(v[name] / (1 - BETAS[1] ** t)) + EPS
            w[name] = w[name] * (1 - LEARNING_RATE * DECAY) - rate * m[name] / spread
        return loss, w, m, v

    state = [weights, zeros, dict(zeros), 0.0]

    def step():
        state[3] += 1.0
        loss, *state[:3] = update(*state)
        return loss.block_until_ready()

    return step


def matmul_rate(n: int = 1024) -> float:
    """GFLOP/s of a float32 product of NumPy's BLAS, the best of a few."""
    a = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * n**3 / min(times) / 1e9


def megabytes(peak: bool) -> float:
    """Resident memory of this process, at its peak or now (Linux; else the peak)."""
    if not peak:
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize() / 2**20
        except OSError:
            pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def build(name, shape, threads):
    """The step function of a contender."""
    if name == "minitx":
        return minitx_step(shape, threads)
    if name == "jax":
        return jax_step(shape, threads)
    return torch_step(shape, threads, compiled=name == "torch_compiled")


def main() -> None:
    name, shape, threads = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    for module in {"minitx": ["minitx.kernels.compiled"], "jax": ["jax"]}.get(name, ["torch"]):
        importlib.import_module(module)
    loaded = megabytes(peak=False)
    step = build(name, shape, threads)

    def answer(value):
        print(json.dumps(value), flush=True)

    answer("ready")
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "losses":
            answer([float(np.asarray(x.detach().numpy() if hasattr(x, "detach") else x).item())
                    for x in (step() for _ in range(int(numbers[0])))])  # fmt: skip
        elif command == "run":
            times = []
            for _ in range(int(numbers[0])):
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            answer(times)
        elif command == "rate":
            answer(matmul_rate())
        elif command == "memory":
            answer([megabytes(peak=True), megabytes(peak=True) - loaded])
        else:
            break


if __name__ == "__main__":
    main()
