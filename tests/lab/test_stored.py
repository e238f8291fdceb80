"""Reading stored runs gives what running would have used again, and runs nothing."""

import pytest

from minitx.errors import MinitxError
from minitx.lab import run
from minitx.lab.runner import DESIGN_FOLDER
from minitx.lab.stored import stored_results


def here(experiment, out, **options):
    return run(experiment, out=out, backend="sequential", **options)


def test_what_was_run_is_read(made_up, tmp_path):
    experiment = made_up["supported"]
    ran = here(experiment, tmp_path, seeds=3).results
    read = stored_results(experiment, tmp_path)
    assert read.runs == ran.runs
    assert (read.seeds, read.arms, read.controls) == (ran.seeds, ran.arms, ran.controls)
    assert stored_results(experiment, tmp_path, seeds=[2, 0]).seeds == (2, 0)


def test_other_settings_and_context_are_told_apart(made_up, tmp_path):
    experiment = made_up["supported"]
    here(experiment, tmp_path, seeds=2)
    changed, context = {"spread": 0.5}, {"kernels": "numpy"}
    for options in ({"overrides": changed}, {"context": context}):
        with pytest.raises(MinitxError, match="All . runs in .* are of other settings, code"):
            stored_results(experiment, tmp_path, **options)
        ran = here(experiment, tmp_path, seeds=2, **options).results
        assert stored_results(experiment, tmp_path, **options).runs == ran.runs


def test_only_whole_seeds_are_read(made_up, tmp_path):
    here(made_up["failing"], tmp_path, seeds=4)  # arm bad fails in seed 1
    assert stored_results(made_up["failing"], tmp_path).seeds == (0, 2, 3)
    with pytest.raises(MinitxError, match=r"lacks 1 of 8 runs .*; make them with: .*--seeds 4\.$"):
        stored_results(made_up["failing"], tmp_path, seeds=range(4))


def test_nothing_stored_names_the_command(made_up, tmp_path):
    with pytest.raises(
        MinitxError, match=r"holds no stored runs; make them with: minitx run .*--design\.$"
    ):
        stored_results(made_up["supported"], tmp_path, design=True)
    assert not any(tmp_path.iterdir())  # a question leaves no folder
    here(made_up["supported"], tmp_path / DESIGN_FOLDER, seeds=[100, 101])
    assert stored_results(made_up["supported"], tmp_path, design=True).seeds == (100, 101)
