"""What an experiment is: arms, seeds, measurements, claims, runner, store.

Nothing here knows of transformers: the lab could judge any experiment. Read ``experiment.py``
first, then ``claims.py`` (on ``minitx/statistics.py``) and ``runner.py``. Beside these,
``settings.py`` parses ``--set``, ``results.py`` is what figures read, ``workers.py`` runs in
parallel, ``store.py`` keeps results on disk, ``stored.py`` reads them back, ``code_version.py``
tells which code made them, ``loading.py`` finds experiments, ``power.py`` tells how many seeds a
claim needs.
"""

from minitx.lab.claims import Claim, ClaimResult, at_least, at_most, judge
from minitx.lab.experiment import Arm, Experiment, arm, find, register, registry, validate
from minitx.lab.results import Results, Run
from minitx.lab.runner import Outcome, Reporter, run
from minitx.statistics import bootstrap_interval

__all__ = [
    "Arm",
    "Claim",
    "ClaimResult",
    "Experiment",
    "Outcome",
    "Reporter",
    "Results",
    "Run",
    "arm",
    "at_least",
    "at_most",
    "bootstrap_interval",
    "find",
    "judge",
    "register",
    "registry",
    "run",
    "validate",
]
