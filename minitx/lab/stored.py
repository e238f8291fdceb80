"""Read what is stored of an experiment, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minitx.errors import MinitxError
from minitx.lab.code_version import code_version
from minitx.lab.experiment import Experiment
from minitx.lab.results import Results
from minitx.lab.runner import DESIGN_FOLDER
from minitx.lab.store import Store, run_key, settings_dict


def stored_results(
    experiment: Experiment,
    out: str | Path = "runs",
    *,
    seeds: Sequence[int] | None = None,
    design: bool = False,
    overrides: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Results:
    """The runs that `minitx.lab.run` would use again: same settings, code and context.

    Parameters
    ----------
    out : path
        The folder that was given to `run`.
    seeds : sequence of int, optional
        Which; default those with a finished run in every arm.
    design : bool
        Read the runs on the design seeds.
    overrides, context
        As they were given to `run`.

    Returns
    -------
    Results
        Without verdicts.

    Raises
    ------
    MinitxError
        If there is no such run, or, with ``seeds``, if one of them is missing; the sentence ends
        with the command that makes them.
    """
    folder = Path(out) / (DESIGN_FOLDER if design else "") / experiment.name
    settings = experiment.settings(overrides)
    code = code_version(experiment)
    keys = {
        arm: run_key(settings_dict(values, f"arm {arm!r}"), code, dict(context or {}))
        for arm, values in settings.items()
    }
    on_disk = Store(folder).load()
    runs = {
        (arm, seed): run
        for (key, arm, seed), run in on_disk.items()
        if keys.get(arm) == key and (seeds is None or seed in seeds)
    }
    complete = [seed for _, seed in runs if all((arm, seed) in runs for arm in settings)]
    found = tuple(sorted(set(complete))) if seeds is None else tuple(seeds)
    missing = [(arm, seed) for seed in found for arm in settings if (arm, seed) not in runs]
    if missing or not found:
        raise MinitxError(
            _what_is_missing(experiment, folder, len(on_disk), missing, seeds, design)
        )
    runs = {(arm, seed): runs[arm, seed] for seed in found for arm in settings}
    controls = frozenset(name for name, arm in experiment.arms.items() if arm.control)
    return Results(experiment.name, tuple(settings), found, runs, settings, controls)


def _what_is_missing(experiment, folder, on_disk: int, missing, seeds, design: bool) -> str:
    if missing:
        total = len(seeds) * len(experiment.arms)
        words = f"{folder} lacks {len(missing)} of {total} runs with the present code"
    elif on_disk:
        words = f"All {on_disk} runs in {folder} are of other settings, code or kernels"
    else:
        words = f"{folder} holds no stored runs"
    cls = type(experiment)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    target = experiment.name if cls.__module__.split(".")[0] == "minitx" or not file else file
    command = f"minitx run {target}{' --design' if design else ''}"
    if seeds is not None and not design:
        command += f" --seeds {len(seeds)}"
    return f"{words}; make them with: {command}."
