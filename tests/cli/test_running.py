"""``minitx run``, ``list`` and ``show``: what they print and write, and how they end."""

import json
import re

import pytest

from minitx import kernels, phenomena


@pytest.mark.parametrize(
    ("threshold", "code", "word"), [(0.5, 0, "✓ supported"), (1.5, 1, "✗ refuted")]
)
def test_run_ends_with_a_table_and_the_figure(cli, one, tmp_path, threshold, code, word):
    result, out, err = cli("run", one(threshold), "--seeds", 3)
    assert result == code
    assert word in out
    assert f"≥ {threshold}" in out
    assert "One is [much]." in out  # brackets are not markup
    assert f"Figure  {tmp_path}/runs/user.one/figure.png" in out
    assert "seeds 0-2" in out
    assert "3 runs" in err
    verdicts = json.loads((tmp_path / "runs" / "user.one" / "verdicts.json").read_text())
    assert verdicts["seeds"] == [0, 1, 2] and not verdicts["quick"]


def test_output_that_is_no_terminal_is_clean_and_narrow(cli, one, made_up_file):
    _, out, err = cli("run", made_up_file)
    for text in (out, err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]", text)
        assert not re.search(r" +\n", text)
    assert max(map(len, out.splitlines())) <= 80 or "errors.log" in out or "Figure" in out
    tables = [line for line in out.splitlines() if "Figure" not in line and "failed" not in line]
    assert max(map(len, tables)) <= 80


def test_a_file_of_several_goes_on_after_failures_and_sums_up(cli, made_up_file):
    code, out, err = cli("run", made_up_file)
    assert code == 1
    summary = out[out.index("All experiments") :]
    for name in ("supported", "refuted", "inconclusive", "failing", "nofigure"):
        assert f"madeup.{name}" in summary
    assert "3 of 3 ✓ supported" in summary
    assert "1 of 1 ✗ refuted" in summary
    assert "1 of 2 ? inconclusive" in summary
    assert summary.count("! failed 1") == 2
    assert "Does the lab judge rightly?" in summary
    assert "arm 'bad', seed 1 failed: RuntimeError: the made-up fault" in err
    assert "ZeroDivisionError: no figure today" in out


def test_treatment_and_control_are_told_apart(cli, made_up_file):
    _, out, _ = cli("run", made_up_file)
    table = out[: out.index("Figure")]
    assert re.search(r"effect +High is high", table)
    assert re.search(r"control +Low is low", table)


def test_a_second_time_uses_what_is_stored(cli, one):
    path = one(body="print('RUN', seed)")
    _, out, _ = cli("run", path, "--seeds", 2)
    assert out.count("RUN") == 2
    _, out, err = cli("run", path, "--seeds", 2)
    assert out.count("RUN") == 0 and "all stored" in err
    _, out, err = cli("run", path, "--seeds", 2, "--seed-start", 1)
    assert out.count("RUN") == 1 and "1 stored" in err
    _, out, _ = cli("run", path, "--seeds", 2, "--fresh")
    assert out.count("RUN") == 2


def test_defaults_and_quick(cli, one, tmp_path):
    config = tmp_path / "runs" / "user.one" / "config.json"
    cli("run", one())
    assert json.loads(config.read_text())["seeds"] == list(range(10))
    code, out, _ = cli("run", one(), "--quick")
    assert code == 0
    assert "quick run" in out and "first look" in out
    assert json.loads(config.read_text())["seeds"] == [0, 1, 2]
    cli("run", one(), "--quick", "--seeds", 4, "--seed-start", 7)
    assert json.loads(config.read_text())["seeds"] == [7, 8, 9, 10]


def test_design_has_seeds_and_a_folder_of_its_own(cli, one, tmp_path):
    path = one(body="print('RUN')")
    cli("run", path, "--seeds", 1)
    before = (tmp_path / "runs" / "user.one" / "config.json").read_text()
    config = tmp_path / "runs" / "design" / "user.one" / "config.json"
    _, out, _ = cli("run", path, "--design")
    assert out.count("RUN") == 20
    assert json.loads(config.read_text())["seeds"] == list(range(100, 120))
    _, out, _ = cli("run", path, "--design", "--seeds", 4)
    assert out.count("RUN") == 0
    assert json.loads(config.read_text())["seeds"] == [100, 101, 102, 103]
    assert (tmp_path / "runs" / "user.one" / "config.json").read_text() == before


def test_set_changes_settings_that_arms_do_not_pin(cli, a_registry, tmp_path):
    code, _, err = cli("run", "madeup.supported", "--set", "spread=0.5", "--set", "mean=0.25")
    assert code == 0
    assert "madeup.supported: arm high keeps mean as it is." in err
    config = json.loads((tmp_path / "runs" / "madeup.supported" / "config.json").read_text())
    assert config["settings"]["high"]["spread"] == 0.5
    assert (config["settings"]["high"]["mean"], config["settings"]["low"]["mean"]) == (3.0, 0.25)


def test_a_damaged_line_is_told(cli, one, tmp_path):
    cli("run", one(), "--seeds", 2)
    with open(tmp_path / "runs" / "user.one" / "results.jsonl", "ab") as file:
        file.write(b'{"arm": "a", "se')
    code, _, err = cli("run", one(), "--seeds", 2)
    assert code == 0
    assert "results.jsonl: line 3 cannot be read" in err


def test_kernels_are_compiled_before_the_runs_and_only_for_them(cli, one, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(kernels, "warm_up", lambda *given, **more: print("WARM"))
    _, out, _ = cli("run", one(body="print('RUN')"), "--seeds", 1)
    assert re.findall("WARM|RUN", out) == ["WARM", "RUN"]
    _, out, _ = cli("run", one(body="print('RUN')"), "--seeds", 1)
    assert re.findall("WARM|RUN", out) == told


def test_other_kernels_are_other_results(cli, one, monkeypatch):
    path = one(body="print('RUN')")
    cli("run", path, "--seeds", 1)
    monkeypatch.setattr(kernels, "active", lambda: "numba")
    _, out, _ = cli("run", path, "--seeds", 1)
    assert out.count("RUN") == 1


def test_list(cli, a_registry):
    code, out, _ = cli("list")
    assert code == 0
    assert "madeup.supported" in out and "Does the lab judge rightly?" in out and "2.0 s" in out
    code, out, _ = cli("list", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
    assert rows[0] == {
        "name": "madeup.failing",
        "family": "madeup",
        "question": "Does the lab judge rightly?",
        "seconds": 1.0,
    }


def test_show_runs_nothing_and_tells_all(cli, a_registry, tmp_path):
    code, out, _ = cli("show", "madeup.supported")
    assert code == 0
    words = " ".join(out.split())
    for part in (
        "Does the lab judge rightly?",
        "Numbers are drawn around a mean that we know.",
        "a number drawn around `mean`",
        "drawn around 3 (mean=3.0)",
        "effect High is high. [x (high) ≥ 1]",
        "effect High is above low. [x (high minus low) ≥ 1.5]",
        "control Low is low. [x (low) ≤ 1]",
        "spread 1.0 (--quick: 0.5)",
        "Made up (2024)",
        "Draw [1] of 8: the number is **known**.",
    ):
        assert part in words, part
    assert not (tmp_path / "runs").exists()


def test_a_family_and_all(cli, a_registry):
    for target in ("madeup", "all"):
        code, out, _ = cli("run", target, "--seeds", 2)
        assert code == 1
        assert "All experiments" in out and "madeup.refuted" in out
    code, out, _ = cli("run", "madeup.supported", "--seeds", 2)
    assert code == 0 and "All experiments" not in out
    code, out, _ = cli("run", "madeup.supported", "madeup.refuted", "--seeds", 2)
    assert code == 1 and "All experiments" in out


def test_a_file_that_cannot_be_imported_hides_no_other(cli, a_registry, monkeypatch):
    broken = {"minitx.phenomena.madeup.broken": ImportError("no such thing")}
    monkeypatch.setattr(phenomena, "load_all", lambda: broken)
    code, out, err = cli("list")
    assert code == 0 and "madeup.supported" in out
    assert "madeup.broken cannot be imported: ImportError: no such thing" in err
    code, out, _ = cli("run", "all", "--seeds", 2)
    assert code == 1 and "madeup.broken" in out and "! failed" in out
    assert "3 of 3" in out


def test_an_experiment_that_fails_as_a_whole_does_not_stop_the_others(
    cli, a_registry, monkeypatch, tmp_path
):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "madeup.refuted").write_text("a file is in the way")
    code, out, err = cli("run", "all", "--seeds", 2)
    assert code == 1
    assert "madeup.refuted is a file, not a folder" in err
    assert "3 of 3" in out[out.index("All experiments") :]


def test_our_own_experiments_hold_together(cli):
    """Each can be imported, is listed, and can be shown."""
    code, out, err = cli("list", "--json")
    assert code == 0 and err == ""
    names = [row["name"] for row in json.loads(out)]
    for name in names:
        code, out, err = cli("show", name)
        assert (code, err) == (0, "") and name in out
        assert max(map(len, out.splitlines())) <= 80
