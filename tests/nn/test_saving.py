"""Model files: they come back bit-identical, and damage is told in one sentence."""

import numpy as np
import pytest
from hypothesis import given

from minitx.errors import MinitxError
from minitx.nn import Transformer, TransformerConfig
from minitx.nn.saving import write_npz
from tests.nn.small import build, configs, seeds, tokens_for

SMALL = TransformerConfig(vocab_size=7, max_len=12, d_model=8, n_heads=2, dtype="float64")


@given(configs(), seeds)
def test_a_saved_model_comes_back_bit_identical(tmp_path_factory, config, seed):
    path = tmp_path_factory.mktemp("models") / "model.npz"
    model = build(config, seed)
    model.save(path)
    loaded = Transformer.load(path)
    assert loaded.config == config and np.array_equal(loaded.flat, model.flat)
    tokens = tokens_for(config, seed, 4)
    assert np.array_equal(loaded(tokens).data, model(tokens).data)
    assert [p.name for p in path.parent.iterdir()] == ["model.npz"]


def test_a_file_of_another_config_says_what_differs(tmp_path):
    path = tmp_path / "model.npz"
    build(SMALL, 0).save(path)
    with pytest.raises(MinitxError, match="another config: n_heads = 2, not 4"):
        Transformer.load(path, config=SMALL.replace(n_heads=4))
    assert Transformer.load(path, config=SMALL).config == SMALL


def test_bad_files_give_one_sentence(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(MinitxError, match="There is no model file"):
        Transformer.load(path)
    build(SMALL, 0).save(path)
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"hello", whole[:300] + b"xx" + whole[302:]):
        path.write_bytes(damage)
        with pytest.raises(MinitxError, match="not a model file of minitx, or it is damaged"):
            Transformer.load(path)
    np.savez(path, a=np.zeros(2))
    with pytest.raises(MinitxError, match="not a model file"):
        Transformer.load(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(MinitxError, match="not a model file"):
        Transformer.load(path)


def test_a_file_that_lacks_a_parameter_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    model = build(SMALL, 0)
    state = model.state_dict()
    state.pop("embed.weight")
    write_npz(path, state, {"kind": "model", "config": SMALL.to_dict()})
    with pytest.raises(MinitxError, match=r"lacks 1 of .*'embed\.weight'"):
        Transformer.load(path)
    write_npz(path, state, {"kind": "model", "config": {**SMALL.to_dict(), "depth": 1}})
    with pytest.raises(MinitxError, match="config key 'depth'"):
        Transformer.load(path)
    write_npz(path, state, {"kind": "checkpoint"})
    with pytest.raises(MinitxError, match="holds no model"):
        Transformer.load(path)


def test_a_failed_save_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    model = build(SMALL, 0)
    model.save(path)
    before = path.read_bytes()

    def fail(*args, **kw):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(KeyboardInterrupt):
        model.save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(MinitxError, match="Cannot write"):
        model.save(tmp_path / "nowhere" / "model.npz")
