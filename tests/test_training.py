"""The training loop: the same numbers every time, also in pieces; and clear words when it fails."""

from dataclasses import dataclass

import numpy as np
import pytest

from minitx import optim
from minitx.autograd import ops
from minitx.errors import MinitxError
from minitx.nn import Linear, Module, Transformer, TransformerConfig
from minitx.training import Callback, Curve, Every, fit

CONFIG = TransformerConfig(vocab_size=6, max_len=5, d_model=8, n_heads=2, n_layers=1)


@dataclass(frozen=True)
class Batch:
    tokens: np.ndarray
    targets: np.ndarray

    def model_kwargs(self):
        return {}


@dataclass(frozen=True)
class Copy:
    """Say what you see: solved within a few steps."""

    vocab_size: int = 6

    def sample(self, batch_size, rng):
        tokens = rng.integers(0, self.vocab_size, (batch_size, 5))
        return Batch(tokens, tokens.copy())


def train(seed=0, model=None, config=CONFIG, steps=12, **kw):
    model = model or Transformer(config, np.random.default_rng(seed))
    kw = {"lr": 1e-2, "batch_size": 8, **kw}
    return model, fit(model, Copy(), steps, rng=np.random.default_rng([seed, 1]), **kw)


def same(a, b):
    return all(np.array_equal(a[n], b[n]) for n in a) and set(a) == set(b)


def test_it_learns():
    model, history = train(steps=80, lr=3e-2)
    assert abs(history.loss[0] - np.log(6)) < 0.1 and history.final_loss < 0.1
    assert history.loss.shape == history.lr.shape == history.grad_norm.shape == (80,)
    assert history.seconds > 0 and not model.training
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.3}])
def test_same_seed_same_numbers(changes):
    config = CONFIG.replace(**changes)
    (a, first), (b, second), (c, _) = (train(s, config=config) for s in (0, 0, 1))
    assert np.array_equal(first.loss, second.loss) and np.array_equal(a.flat, b.flat)
    assert not np.array_equal(a.flat, c.flat)


def test_evaluating_does_not_change_training():
    """Callbacks have a stream of their own, in whatever amount they use it."""
    plain = train()[1]

    def evaluate(state):
        batch = Copy().sample(50, state.rng)
        return ops.cross_entropy(state.model(batch.tokens), batch.targets).item()

    for every in (1, 5):
        curve = Curve({"loss": evaluate}, every)
        _, history = train(callbacks=[curve])
        assert np.array_equal(history.loss, plain.loss)
        assert curve.steps.tolist() == sorted({0, *range(every, 13, every), 12})
        assert curve["loss"].shape == curve.steps.shape


def test_dropout_is_off_while_a_curve_measures():
    seen = []
    curve = Curve({"mode": lambda state: seen.append(state.model.training) or 0.0}, 3)
    model, _ = train(config=CONFIG.replace(dropout=0.2), callbacks=[curve])
    assert seen == [False] * 5
    plain = train(config=CONFIG.replace(dropout=0.2))[0]
    assert np.array_equal(model.flat, plain.flat)


class Interrupt(Callback):
    def __init__(self, at):
        self.at = at

    def after_step(self, state):
        if state.step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("stop", [3, 4, 11])
def test_a_run_in_pieces_gives_the_numbers_of_a_whole_one(tmp_path, optimizer, stop):
    path = tmp_path / "run.npz"
    config = CONFIG.replace(dropout=0.2)

    def measure(state):
        return float(state.rng.random())

    def go(stop=None, **kw):
        curve = Curve({"draw": measure}, 2)
        callbacks = [curve] + ([Interrupt(stop)] if stop else [Callback()])
        kw |= {"schedule": optim.linear_decay(), "clip": 0.5, "optimizer": optimizer}
        return *train(config=config, callbacks=callbacks, **kw), curve

    whole, history, curve = go()
    with pytest.raises(KeyboardInterrupt):
        go(stop, checkpoint=path, checkpoint_every=2)
    model, again, second = go(checkpoint=path, checkpoint_every=2)
    assert np.array_equal(model.flat, whole.flat)
    for name in ("loss", "lr", "grad_norm"):
        assert np.array_equal(getattr(again, name), getattr(history, name))
    assert np.array_equal(second.steps, curve.steps)
    assert np.array_equal(second["draw"], curve["draw"])
    # once finished, the file answers without training
    finished, third, _ = go(checkpoint=path)
    assert np.array_equal(finished.flat, whole.flat) and np.array_equal(third.loss, history.loss)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    train(checkpoint=path)
    with pytest.raises(MinitxError, match=r"belongs to another run \(steps 12, here 13\)"):
        train(checkpoint=path, steps=13)
    with pytest.raises(MinitxError, match="belongs to another run .seed"):
        train(checkpoint=path, seed=1)
    with pytest.raises(MinitxError, match="optimizer 'AdamW', here 'Adam'"):
        train(checkpoint=path, optimizer="adam")
    with pytest.raises(MinitxError, match="shape|lacks|parameter"):
        train(checkpoint=path, config=CONFIG.replace(d_model=12))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(MinitxError, match="not a checkpoint of minitx, or it is damaged"):
        train(checkpoint=path)
    Transformer(CONFIG, np.random.default_rng(0)).save(path)
    with pytest.raises(MinitxError, match="is no checkpoint"):
        train(checkpoint=path)


def test_callbacks_step_in_at_their_places():
    class Log(Callback):
        def __init__(self):
            self.calls = []

        def on_start(self, state):
            self.calls.append("start")

        def on_batch(self, state, batch):
            self.calls.append(f"batch {state.step}")
            return Batch(batch.tokens[:2], batch.targets[:2])

        def penalty(self, state):
            self.calls.append("penalty")
            return ops.sum(state.model.embed.weight**2)

        def after_backward(self, state):
            assert state.batch.tokens.shape == (2, 5)
            assert state.model.embed.weight.grad is not None
            self.calls.append("backward")

        def after_step(self, state):
            self.calls.append(f"step {state.step}")

        def on_end(self, state):
            self.calls.append("end")

    log = Log()
    ticks = []
    train(steps=2, callbacks=[log, Every(2, lambda state: ticks.append(state.step))])
    one = ["penalty", "backward"]
    assert log.calls == ["start", "batch 0", *one, "step 1", "batch 1", *one, "step 2", "end"]
    assert ticks == [2]


def test_a_penalty_of_zero_changes_nothing_and_others_pull():
    class Decay(Callback):
        def __init__(self, strength):
            self.strength = strength

        def penalty(self, state):
            return ops.sum(state.model.unembed.weight**2) * self.strength

    plain, history = train()
    zero, with_zero = train(callbacks=[Decay(0.0)])
    pulled, with_pull = train(callbacks=[Decay(1.0)])
    assert np.array_equal(plain.flat, zero.flat) and np.array_equal(history.loss, with_zero.loss)
    assert np.linalg.norm(pulled.W_U) < 0.8 * np.linalg.norm(plain.W_U)
    assert with_pull.loss[0] == history.loss[0]  # the penalty is not in the recorded loss


def test_gradients_changed_by_a_callback_are_what_moves():
    class Nothing(Callback):
        def after_backward(self, state):
            for p in state.model.parameters():
                p.grad[...] = 0

    model, history = train(callbacks=[Nothing()])
    assert np.array_equal(model.flat, Transformer(CONFIG, np.random.default_rng(0)).flat)
    assert not history.grad_norm.any()


def test_frozen_parameters_stay_bit_identical():
    model = Transformer(CONFIG, np.random.default_rng(0))
    model.blocks[0].requires_grad_(False)
    before = model.state_dict()
    train(model=model, weight_decay=0.1)
    for name, array in model.state_dict().items():
        assert np.array_equal(array, before[name]) == name.startswith("blocks.0."), name


def test_a_callback_may_release_what_was_frozen():
    class Release(Callback):
        def after_step(self, state):
            if state.step == 6:
                state.model.embed.requires_grad_(True)
                self.before = state.model.W_E.copy()

    model = Transformer(CONFIG, np.random.default_rng(0))
    model.embed.requires_grad_(False)
    start, release = model.W_E.copy(), Release()
    train(model=model, callbacks=[release])
    assert np.array_equal(release.before, start) and not np.array_equal(model.W_E, start)


def test_an_optimizer_of_your_own_and_a_loss_of_your_own():
    model = Transformer(CONFIG, np.random.default_rng(0))
    opt = optim.SGD(model.parameters(), lr=0.5)

    def loss(logits, batch):
        return ops.mean(logits**2)

    _, history = train(model=model, optimizer=opt, loss=loss, schedule=optim.warmup(4))
    assert np.allclose(history.lr[:5], [0.125, 0.25, 0.375, 0.5, 0.5]) and opt.lr == 0.5
    assert history.loss[-1] < history.loss[0]


def test_a_function_may_stand_for_a_task_and_any_module_for_the_model():
    class Plain(Module):
        def __init__(self, rng):
            self.head = Linear(6, 6, rng=rng)

        def forward(self, tokens):
            from minitx.autograd import Tensor

            return self.head(Tensor(np.eye(6, dtype=np.float32)[tokens]))

    model = Plain(np.random.default_rng(0))
    history = fit(model, Copy().sample, 30, lr=0.3, rng=np.random.default_rng(0))
    assert history.final_loss < 0.2


def test_progress_is_reported(capsys):
    reports = []
    train(steps=3, progress=lambda step, steps, loss: reports.append((step, steps, loss)))
    assert [r[:2] for r in reports] == [(1, 3), (2, 3), (3, 3)] and reports[0][2] > 1
    train(steps=3, progress=True)
    assert "training" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_bad_number_is_named_with_its_step():
    class Poison(Callback):
        def __init__(self, name, at=3):
            self.name, self.at = name, at

        def after_step(self, state):
            if state.step == self.at:
                dict(state.model.named_parameters())[self.name].data.flat[0] = np.nan

    with pytest.raises(
        MinitxError, match=r"became nan at step 3.*parameter 'blocks.0.mlp.up.weight'"
    ):
        train(callbacks=[Poison("blocks.0.mlp.up.weight")])

    class Grad(Callback):
        def after_backward(self, state):
            state.model.blocks[0].attn.value.weight.grad[0, 0] = np.inf

    with pytest.raises(MinitxError, match=r"gradient became inf at step 0.*attn.value.weight"):
        train(callbacks=[Grad()])

    model = Transformer(CONFIG, np.random.default_rng(0))
    with (
        pytest.raises(MinitxError, match=r"at step 0.*activation 'blocks.0.attn.hook_z'"),
        model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z * np.float32(np.inf))]),
    ):
        train(model=model)
    with pytest.raises(MinitxError, match="at step 0.*the loss itself"):
        train(loss=lambda logits, batch: ops.sum(logits) * np.float32(np.nan))


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"rng": None}, "rng=np.random.default_rng"),
        ({"rng": 3}, "rng=np.random.default_rng"),
        ({"optimizer": "adagrad"}, "optimizer 'adagrad'.*Known: adam, adamw, sgd"),
        ({"steps": -1}, "steps >= 0"),
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"checkpoint_every": 5}, "needs a checkpoint path"),
    ],
)
def test_wrong_settings(kw, message):
    model = Transformer(CONFIG, np.random.default_rng(0))
    with pytest.raises(MinitxError, match=message):
        fit(model, Copy(), **{"steps": 1, "rng": np.random.default_rng(0), **kw})
    with pytest.raises(MinitxError, match="n >= 1"):
        Every(0, print)
    with pytest.raises(MinitxError, match="every >= 1"):
        Curve({}, 0)


def test_all_targets_ignored_is_an_error():
    def nothing(batch_size, rng):
        return Batch(np.zeros((2, 3), int), np.full((2, 3), -100))

    model = Transformer(CONFIG, np.random.default_rng(0))
    with pytest.raises(MinitxError, match="ignored"):
        fit(model, nothing, 1, rng=np.random.default_rng(0))


def test_no_steps_is_no_training():
    model, history = train(steps=0)
    assert np.isnan(history.final_loss) and history.loss.shape == (0,)
    assert np.array_equal(model.flat, Transformer(CONFIG, np.random.default_rng(0)).flat)
