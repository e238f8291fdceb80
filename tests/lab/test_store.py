"""The folder of results: only grows, survives kills, belongs to one process at a time."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.errors import MinitxError
from minitx.lab.store import LOCK, RESULTS, Store, run_key, settings_dict


def record(seed, x=1.5, key="k"):
    return {"arm": "a", "seed": seed, "measurements": {"x": x}, "seconds": 2.0, "key": key}


def test_what_is_appended_is_read_again(tmp_path):
    with Store(tmp_path / "e") as store:
        run = store.append(record(0, x=0.1 + 0.2))
        assert run.measurements == {"x": 0.1 + 0.2}
        store.append(record(1))
        assert store.load()["k", "a", 0] == run
        assert {key[2] for key in store.load()} == {0, 1}
        assert store.damaged == []


def test_each_line_is_on_disk_at_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    with Store(tmp_path) as store:
        store.append(record(0))
        size = (tmp_path / RESULTS).stat().st_size
        assert synced == [size] and size > 0


@given(cut=st.integers(0, 200))
def test_a_file_cut_off_anywhere_loses_only_the_last_line(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    with Store(folder) as store:
        for seed in range(3):
            store.append(record(seed))
        content = (folder / RESULTS).read_bytes()
        lines = content.splitlines(keepends=True)
        cut = min(cut, len(lines[2]) - 2)  # keep from nothing to all but the closing brace
        (folder / RESULTS).write_bytes(b"".join(lines[:2]) + lines[2][:cut])
        assert sorted(seed for _, _, seed in store.load()) == [0, 1]
        assert store.damaged == ([3] if cut else [])
        store.append(record(2))
        store.append(record(3))
        assert sorted(seed for _, _, seed in store.load()) == [0, 1, 2, 3]


GARBAGE = [
    b"\x00\x00\x00\x00",
    b"\xff\xfe garbage",
    b"[1, 2]",
    b"3",
    b'{"arm": "a", "seed": 9}',
    b'{"arm": "a", "seed": "9", "measurements": {}, "seconds": 1, "key": "k"}',
    b'{"arm": "a", "seed": 9, "measurements": {"x": NaN}, "seconds": 1, "key": "k"}',
    b'{"arm": "a", "seed": 9, "measurements": [1], "seconds": 1, "key": "k"}',
    b'{"arm": "a", "seed": 9, "measurements": {}, "seconds": null, "key": "k"}',
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_the_middle_does_not_count_and_is_kept(tmp_path, garbage):
    with Store(tmp_path) as store:
        store.append(record(0))
        with open(tmp_path / RESULTS, "ab") as file:
            file.write(garbage + b"\n")
        store.append(record(1))
        assert sorted(seed for _, _, seed in store.load()) == [0, 1]
        assert store.damaged == [2]
        assert garbage in (tmp_path / RESULTS).read_bytes()


def test_the_later_of_two_lines_counts(tmp_path):
    with Store(tmp_path) as store:
        store.append(record(0, x=1.0))
        store.append(record(0, x=2.0))
        assert store.load()["k", "a", 0].measurements == {"x": 2.0}
        assert len((tmp_path / RESULTS).read_text().splitlines()) == 2


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    with Store(tmp_path) as store:
        store.write_json("verdicts.json", {"a": 1})

        class Figure:
            def savefig(self, path, **kwargs):
                path.write_bytes(b"half a pict")
                raise OSError(28, "No space left on device")

        with pytest.raises(ValueError):
            store.write_json("verdicts.json", {"a": float("nan")})
        with pytest.raises(MinitxError, match="No space left.*what was stored is kept"):
            store.write_figure(Figure())
    assert json.loads((tmp_path / "verdicts.json").read_text()) == {"a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "verdicts.json"]


def test_two_processes_in_one_folder(tmp_path):
    code = (
        "import sys; from pathlib import Path; from minitx.lab.store import Store\n"
        "with Store(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(MinitxError, match=f"Another minitx .process {other.pid}. is working"):
            Store(tmp_path).__enter__()
    finally:
        other.kill()  # a lock must not outlive its process, however that ends
        other.wait()
        other.stdin.close()
        other.stdout.close()
    with Store(tmp_path):
        pass


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "deep" / "er"):
        with pytest.raises(MinitxError, match="file is a file, not a folder"):
            Store(folder).__enter__()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(MinitxError, match="Permission denied; choose another --out"):
        Store(tmp_path / "new").__enter__()


def test_the_key_tells_settings_code_and_context_apart():
    keys = {
        run_key({"steps": 1}, "c", {}),
        run_key({"steps": 2}, "c", {}),
        run_key({"steps": 1}, "d", {}),
        run_key({"steps": 1}, "c", {"kernels": "numpy"}),
    }
    assert len(keys) == 4
    assert run_key({"a": 1, "b": 2}, "c", {}) == run_key({"b": 2, "a": 1}, "c", {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), 1j])
def test_settings_that_cannot_be_stored(value):
    @dataclass(frozen=True)
    class Settings:
        odd: object = value

    with pytest.raises(MinitxError, match="Setting 'odd' of arm 'a' is"):
        settings_dict(Settings(), "arm 'a'")
