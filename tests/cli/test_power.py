"""``minitx power``: a table from stored runs, or a sentence where there are none."""

import re


def test_a_table_for_what_is_stored(cli, one, tmp_path):
    path, out_folder = one(threshold=0.5), tmp_path / "runs"
    cli("run", path, "--seeds", 3)
    code, out, err = cli("power", path, "--seeds", "1,4", "--out", out_folder)
    assert (code, err) == (0, "")
    assert "3 stored seeds (0-2)" in out and "first look" in out
    assert re.search(r"effect +One is \[much\]\. +0 % +100 % +2\n", out), out
    assert re.search(r"all claims at once +0 % +100 % +2\n", out)
    assert max(map(len, out.splitlines())) <= 80
    cli("run", path, "--seeds", 12)
    code, out, _ = cli("power", path, "--out", out_folder)
    assert "first look" not in out and re.search("5 seeds +10 seeds +20 seeds", out)


def test_the_design_runs_are_asked_for(cli, one, tmp_path):
    path = one(threshold=1.5)
    cli("run", path, "--design", "--seeds", 4)
    code, _, err = cli("power", path, "--out", tmp_path / "runs")
    assert code == 2 and "no stored runs" in err
    code, out, _ = cli("power", path, "--design", "--out", tmp_path / "runs")
    assert code == 0 and "(100-103)" in out and "> 60" in out


def test_wrong_usage(cli, one, tmp_path):
    for arguments, words in (
        ([], r"user\.one holds no stored runs; make them with: minitx run .*one\.py\."),
        (["--seeds", "3,x"], "takes whole numbers with commas between, .* got '3,x'"),
        (["--seeds", "0"], "at least 1, got 0"),
        (["--set", "mean=1"], "Unknown .* setting 'mean'"),
    ):
        code, out, err = cli("power", one(), "--out", tmp_path / "runs", *arguments)
        assert (code, out) == (2, "")
        assert re.search(words, err), err
        assert err.count("\n") == 1
