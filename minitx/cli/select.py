"""Which experiments a name on the command line stands for."""

from __future__ import annotations

import os
from pathlib import Path

from minitx import phenomena
from minitx.errors import MinitxError, unknown
from minitx.lab.experiment import Experiment, registry
from minitx.lab.loading import describe, experiments_in


def everything() -> tuple[list[Experiment], dict[str, str]]:
    """All experiments by name, and what is wrong with the files that cannot be imported."""
    broken = {
        module.removeprefix("minitx.phenomena."): describe(error)
        for module, error in phenomena.load_all().items()
    }
    return [registry[name]() for name in sorted(registry)], broken


def select(target: str) -> tuple[list[Experiment], dict[str, str]]:
    """The experiments behind ``NAME``, ``FAMILY``, ``all`` or ``path/to/file.py``.

    Returns
    -------
    experiments : list of Experiment
    broken : dict
        Files of a family that cannot be imported: {name: why}.

    Raises
    ------
    MinitxError
        If there is no such experiment; the nearest names are suggested.
    """
    if target.endswith(".py") or os.sep in target:
        return experiments_in(Path(target)), {}
    modules = [name.removeprefix("minitx.phenomena.") for name in phenomena.modules()]
    if target in modules:
        return [phenomena.load(target)], {}
    found, broken = everything()
    if target == "all":
        if not found and not broken:
            raise MinitxError("There are no experiments in this installation.")
        return found, broken
    mine = [each for each in found if target in (each.name, each.family)]
    wrong = {name: why for name, why in broken.items() if name.split(".")[0] == target}
    if not mine and not wrong:
        families = {each.family for each in found}
        raise unknown("experiment", target, {*(each.name for each in found), *families, "all"})
    return mine, wrong
