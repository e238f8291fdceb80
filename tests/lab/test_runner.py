"""The runner on made-up experiments: right verdicts, the same numbers however they are run."""

import json
import shutil

import numpy as np
import pytest

from minitx.errors import MinitxError
from minitx.lab import Reporter, run
from minitx.lab.results import Run
from minitx.lab.runner import busy_seconds, check_jobs, check_seeds


def measurements(outcome):
    """Everything that was measured, as text: equal text is equal bit for bit."""
    runs = outcome.results.runs
    return {key: json.dumps(runs[key].measurements, sort_keys=True) for key in sorted(runs)}


def here(experiment, out, **options):
    return run(experiment, out=out, backend="sequential", **options)


def read_lines(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_known_verdicts(made_up, tmp_path):
    expected = {
        "supported": ["supported"] * 3,
        "refuted": ["refuted"],
        "inconclusive": ["inconclusive", "supported"],
    }
    for name, words in expected.items():
        outcome = here(made_up[name], tmp_path)
        assert [claim.verdict for claim in outcome.results.claims] == words
        assert outcome.supported == (name == "supported")
        assert outcome.errors == []


def test_the_files_are_as_promised(made_up, tmp_path):
    outcome = here(made_up["supported"], tmp_path, seeds=2, seed_start=3)
    folder = tmp_path / "madeup.supported"
    assert outcome.folder == folder
    lines = read_lines(folder)
    assert [(line["arm"], line["seed"]) for line in lines] == [
        ("high", 3), ("low", 3), ("high", 4), ("low", 4),
    ]  # fmt: skip
    assert all({"arm", "seed", "measurements", "seconds"} <= set(line) for line in lines)
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert {"name", "seeds", "quick", "seconds", "claims"} <= set(verdicts)
    assert verdicts["name"] == "madeup.supported"
    assert verdicts["seeds"] == [3, 4]
    assert verdicts["quick"] is False
    for claim in verdicts["claims"]:
        assert set(claim) >= {
            *("id", "text", "control", "estimate", "low", "high"),
            *("direction", "threshold", "verdict"),
        }
        assert isinstance(claim["control"], bool)
        assert claim["direction"] in ("at_least", "at_most")
        assert claim["low"] <= claim["estimate"] <= claim["high"]
        assert claim["verdict"] in ("supported", "refuted", "inconclusive")
    assert [claim["control"] for claim in verdicts["claims"]] == [False, False, True]
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["high"]["mean"] == 3.0
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert outcome.figure == folder / "figure.png"


def test_numbers_do_not_hang_on_processes(made_up, tmp_path):
    one = here(made_up["supported"], tmp_path / "one", seeds=3)
    two = run(made_up["supported"], out=tmp_path / "two", seeds=3, jobs=2)
    three = run(made_up["supported"], out=tmp_path / "three", seeds=3, jobs=3)
    assert measurements(one) == measurements(two) == measurements(three)
    claims = [[c.to_dict() for c in o.results.claims] for o in (one, two, three)]
    assert claims[0] == claims[1] == claims[2]
    assert {each["threads"] for r in two.results.runs.values() for each in [r.measurements]} == {
        "1"
    }


def test_in_this_process_too_kernels_and_blas_work_on_one_thread(made_up, tmp_path, monkeypatch):
    """Whoever calls from a notebook may have used several threads before."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    from minitx.kernels import threads

    before, seen = threads.get_threads(), set()
    monkeypatch.setattr(threads, "_count", 3)
    experiment = made_up["supported"]

    def measure(settings, seed):
        blas = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
        seen.add((threads.get_threads(), *blas))
        return {"x": 1.0}

    monkeypatch.setattr(experiment, "measure", measure, raising=False)
    assert here(experiment, tmp_path, seeds=1).errors == []
    assert {number for numbers in seen for number in numbers} == {1}
    assert threads.get_threads() == 3
    monkeypatch.setattr(threads, "_count", before)


def test_a_run_that_raises_takes_none_with_it(made_up, tmp_path):
    for jobs, how, words in (
        (1, "raise", "RuntimeError: the made-up fault"),
        (2, "raise", "RuntimeError: the made-up fault"),
        (1, "exit", "SystemExit: 3"),
        (1, "unstorable", "'x' is object, which cannot be stored"),
        (1, "missing", "Unknown measure 'x'. Known: matrix, nothing, third"),
        (
            1,
            "array",
            "needs one number per run, but 'x' of 'bad', seed 1, is ndarray of shape (3,)",
        ),
    ):
        out = tmp_path / f"{how}{jobs}"
        outcome = run(made_up["failing"], out=out, seeds=5, jobs=jobs, overrides={"how": how})
        [error] = outcome.errors
        assert error.startswith("madeup.failing, arm 'bad', seed 1: ")
        assert words in error
        assert outcome.results.finished_seeds("good") == [0, 1, 2, 3, 4]
        assert outcome.results.finished_seeds("bad") == [0, 2, 3, 4]
        assert [claim.verdict for claim in outcome.results.claims] == ["supported"] * 2
        assert not outcome.supported
        log = (out / "madeup.failing" / "errors.log").read_text()
        assert "arm 'bad', seed 1" in log and "Traceback" in log
        verdicts = json.loads((out / "madeup.failing" / "verdicts.json").read_text())
        assert verdicts["errors"] == outcome.errors


def test_a_run_that_kills_its_process_takes_none_with_it(made_up, tmp_path):
    outcome = run(made_up["failing"], out=tmp_path, jobs=2, seeds=3, overrides={"how": "die"})
    [error] = outcome.errors
    assert error.startswith("madeup.failing, arm 'bad', seed 1: the process died")
    assert outcome.results.finished_seeds("bad") == [0, 2]
    assert outcome.results.finished_seeds("good") == [0, 1, 2]


def test_a_failed_run_is_tried_again(made_up, tmp_path):
    here(made_up["failing"], tmp_path)
    counted = Count()
    here(made_up["failing"], tmp_path, reporter=counted)
    assert counted.runs == [("bad", 1)]


def test_a_value_that_is_not_finite_decides_nothing(made_up, tmp_path):
    outcome = here(made_up["failing"], tmp_path, overrides={"how": "nan"})
    assert [claim.verdict for claim in outcome.results.claims] == ["supported", "inconclusive"]
    text = (tmp_path / "madeup.failing" / "results.jsonl").read_text()
    assert "NaN" not in text and '"x": null' in text
    assert "NaN" not in (tmp_path / "madeup.failing" / "verdicts.json").read_text()


def test_a_figure_that_fails_leaves_the_verdicts(made_up, tmp_path):
    outcome = here(made_up["nofigure"], tmp_path)
    assert outcome.figure is None and not outcome.supported
    [error] = outcome.errors
    assert error.startswith("madeup.nofigure, figure: ZeroDivisionError: no figure today")
    verdicts = json.loads((tmp_path / "madeup.nofigure" / "verdicts.json").read_text())
    assert verdicts["claims"][0]["verdict"] == "supported"


class Count(Reporter):
    """Which runs were really done."""

    def __init__(self):
        self.runs = []

    def on_start(self, experiment, plan):
        self.plan = plan

    def on_run(self, done):
        self.runs.append((done.arm, done.seed))


def count(experiment, out, **options):
    counted = Count()
    outcome = here(experiment, out, reporter=counted, **options)
    return len(counted.runs), outcome


def test_what_is_stored_is_used(made_up, tmp_path):
    experiment = made_up["supported"]
    assert count(experiment, tmp_path, seeds=2)[0] == 4
    assert count(experiment, tmp_path, seeds=2)[0] == 0
    assert count(experiment, tmp_path, seeds=3)[0] == 2
    assert count(experiment, tmp_path, seeds=[2, 7])[0] == 2
    assert count(experiment, tmp_path, seeds=3, fresh=True)[0] == 6
    assert len(read_lines(tmp_path / "madeup.supported")) == 4 + 2 + 2 + 6


def test_other_settings_are_other_results(made_up, tmp_path):
    experiment = made_up["supported"]
    plain = count(experiment, tmp_path, seeds=2)[1]
    # `mean` is pinned by one arm only: the other arm's results are new, the pinned arm's are not.
    runs, other = count(experiment, tmp_path, seeds=2, overrides={"mean": "0.25"})
    assert runs == 2
    assert measurements(other)["high", 0] == measurements(plain)["high", 0]
    assert measurements(other)["low", 0] != measurements(plain)["low", 0]
    assert count(experiment, tmp_path, seeds=2, quick=True)[0] == 4
    assert count(experiment, tmp_path, seeds=2, context={"kernels": "numpy"})[0] == 4
    runs, again = count(experiment, tmp_path, seeds=2)
    assert runs == 0
    assert measurements(again) == measurements(plain)


def test_quick_is_marked(made_up, tmp_path):
    outcome = here(made_up["supported"], tmp_path, seeds=2, quick=True)
    assert outcome.results.quick
    verdicts = json.loads((tmp_path / "madeup.supported" / "verdicts.json").read_text())
    assert verdicts["quick"] is True
    assert outcome.results.settings["low"].spread == 0.5


def test_resumed_is_uninterrupted_bit_for_bit(made_up, tmp_path):
    experiment, whole, broken = made_up["supported"], tmp_path / "whole", tmp_path / "broken"
    uninterrupted = here(experiment, whole, seeds=5)
    shutil.copytree(whole, broken)
    path = broken / "madeup.supported" / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:37])
    runs, resumed = count(experiment, broken, seeds=5)
    assert runs == 6
    assert measurements(resumed) == measurements(uninterrupted)
    mine, other = (
        json.loads((p / "madeup.supported" / "verdicts.json").read_text()) for p in (broken, whole)
    )
    assert mine["claims"] == other["claims"]


def test_claims_and_figure_read_what_was_stored(made_up, tmp_path):
    """What measure() returned is not handed on: in memory it may be a tuple or float32."""
    outcome = here(made_up["supported"], tmp_path, seeds=2)
    run_ = outcome.results["high"][0]
    assert isinstance(run_.measurements["matrix"], list)
    assert isinstance(run_.measurements["third"], float)
    stored = read_lines(tmp_path / "madeup.supported")[0]["measurements"]
    assert run_.measurements == stored
    third = np.float32(stored["x"]) / np.float32(3)
    assert np.float32(stored["third"]) == third


def test_a_damaged_line_is_told(made_up, tmp_path):
    here(made_up["supported"], tmp_path, seeds=1)
    path = tmp_path / "madeup.supported" / "results.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    counted = Count()
    here(made_up["supported"], tmp_path, seeds=1, reporter=counted)
    assert counted.plan.damaged == (1,)
    assert counted.runs == []


def test_seconds_are_the_union_of_the_runs_spans():
    spans = [(0.0, 2.0), (1.0, 3.0), (10.0, 11.0), (10.2, 10.5)]
    runs = [Run("a", i, {}, stop - start, stop) for i, (start, stop) in enumerate(spans)]
    assert busy_seconds(runs) == pytest.approx(4.0)
    assert busy_seconds([]) == 0.0


def test_wrong_arguments(made_up, tmp_path):
    for options, words in (
        ({"seeds": 0}, "number of seeds is at least 1, got 0"),
        ({"seeds": -3}, "number of seeds is at least 1, got -3"),
        ({"seed_start": -1}, "first seed is at least 0, got -1"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [1, 1]}, "different numbers"),
        ({"jobs": 0}, "number of jobs is at least 1, got 0"),
        ({"backend": "lokky"}, "Unknown backend 'lokky'. Did you mean 'loky'"),
        ({"overrides": {"spred": "1"}}, "'spred'. Did you mean 'spread'"),
    ):
        with pytest.raises(MinitxError, match=words):
            run(made_up["supported"], out=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
    assert check_seeds(3, 2) == (2, 3, 4)
    assert check_jobs(None) >= 1
