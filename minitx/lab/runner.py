"""Run an experiment: use what is stored, run the rest, judge the claims, draw the figure."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minitx.errors import MinitxError
from minitx.lab.claims import judge
from minitx.lab.code_version import code_version
from minitx.lab.experiment import Experiment, validate
from minitx.lab.loading import describe, reference
from minitx.lab.results import Results, Run, from_json
from minitx.lab.settings import fields_of
from minitx.lab.store import CONFIG, ERRORS, VERDICTS, Store, run_key, settings_dict
from minitx.lab.workers import Done, Task, check_backend, cores, perform_all

DEFAULT_SEEDS = 10
QUICK_SEEDS = 3
DESIGN_SEEDS = tuple(range(100, 120))
"""Seeds to try recipes and thresholds on. The default run (0, 1, 2, ...) judges, and has not seen
what was tried."""
DESIGN_FOLDER = "design"  # beside the experiments' own folders: no experiment's name is one word


class Reporter:
    """Is told how the runs go. The base class keeps silent."""

    def on_start(self, experiment: Experiment, plan: Plan) -> None:
        """Before the first run."""

    def on_run(self, done: Done) -> None:
        """After each run, whether or not it worked (``done.error``)."""

    def on_end(self, outcome: Outcome) -> None:
        """After verdicts and figure."""


@dataclass(frozen=True)
class Plan:
    """What a call of `run` is about to do."""

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    stored: frozenset[tuple[str, int]]  # (arm, seed) that need not be run
    jobs: int  # 0: as many as a cluster has room for
    damaged: tuple[int, ...]  # unreadable lines of results.jsonl


@dataclass
class Outcome:
    """What came of an experiment.

    Attributes
    ----------
    results : Results
        With the verdicts in ``results.claims``.
    folder, figure : Path, Path or None
        Where all is stored; None if the figure could not be drawn.
    errors : list of str
        One sentence for each run (or figure) that failed, naming arm and seed.
    seconds : float
        Wall time in which runs were going, also in earlier sessions whose results were used.
    """

    results: Results
    folder: Path
    figure: Path | None = None
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def supported(self) -> bool:
        """True if nothing failed and every claim is supported."""
        return not self.errors and all(claim.supported for claim in self.results.claims)


def run(
    experiment: Experiment,
    *,
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    seed_start: int = 0,
    jobs: int | None = None,
    quick: bool = False,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path = "runs",
    fresh: bool = False,
    backend: str = "loky",
    context: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> Outcome:
    """Run an experiment's arms over seeds and judge its claims.

    Parameters
    ----------
    experiment : Experiment
    seeds : int or sequence of int
        How many seeds, counted from ``seed_start``, or which.
    jobs : int, optional
        Processes side by side, by default one for each core (of the cluster, with
        ``dask:ADDRESS``). The numbers do not hang on it.
    quick : bool
        Use the experiment's ``quick`` settings; verdicts are marked as such.
    overrides : dict
        Settings to change in all arms that do not pin them.
    out : path
        Results go to ``out/NAME/``.
    fresh : bool
        Run everything, whatever is stored (and keep that).
    backend : str
        ``loky`` (processes), ``sequential`` (in this process), ``dask`` or ``dask:ADDRESS``.
    context : dict
        What else a stored result must agree on, such as the kernels in use.
    reporter : Reporter
        Is told of progress.

    Raises
    ------
    MinitxError
        For wrong arguments, or a folder that cannot be written. What a run raises ends up in
        ``Outcome.errors`` and in ``errors.log``.
    """
    validate(experiment)
    check_backend(backend)
    wanted = check_seeds(seeds, seed_start)
    jobs = 0 if jobs is None and backend.startswith("dask:") else check_jobs(jobs)
    settings = experiment.settings(overrides, quick)
    code, context, reporter = code_version(experiment), dict(context or {}), reporter or Reporter()
    as_dicts = {arm: settings_dict(s, f"arm {arm!r}") for arm, s in settings.items()}
    keys = {arm: run_key(values, code, context) for arm, values in as_dicts.items()}

    with Store(Path(out) / experiment.name) as store:
        on_disk = {} if fresh else store.load()
        runs: dict[tuple[str, int], Run] = {
            (arm, seed): on_disk[key, arm, seed]
            for seed in wanted
            for arm, key in keys.items()
            if (key, arm, seed) in on_disk
        }
        store.write_json(
            CONFIG,
            {
                "name": experiment.name,
                "seeds": list(wanted),
                "quick": quick,
                "settings": as_dicts,
                "overrides": settings_dict_of(overrides),
                "code": code,
                "context": context,
                "versions": _versions(),
            },
        )
        stored = frozenset(runs)
        plan = Plan(tuple(settings), wanted, stored, jobs, tuple(store.damaged))
        reporter.on_start(experiment, plan)
        errors: list[str] = []
        for done in _missing(experiment, settings, plan, code, backend):
            if done.error:
                errors.append(
                    f"{experiment.name}, arm {done.arm!r}, seed {done.seed}: {done.error}"
                )
                store.log_error(f"{errors[-1]}\n{done.trace}")
            else:
                record = {
                    "arm": done.arm,
                    "seed": done.seed,
                    "measurements": from_json(done.measurements),
                    "seconds": done.seconds,
                    "finished": done.finished,
                    "key": keys[done.arm],
                    "settings": as_dicts[done.arm],
                    "code": code,
                    "context": context,
                }
                runs[done.arm, done.seed] = store.append(record)
            reporter.on_run(done)
        controls = frozenset(name for name, arm in experiment.arms.items() if arm.control)
        results = Results(
            experiment.name, tuple(settings), wanted, runs, settings, controls, quick=quick
        )
        outcome = Outcome(results, store.folder, errors=errors, seconds=busy_seconds(runs.values()))
        _conclude(experiment, outcome, store)
    reporter.on_end(outcome)
    return outcome


def _missing(experiment, settings, plan: Plan, code: str, backend: str):
    """Do the runs that are not stored, seed by seed: what is broken off is balanced over arms."""
    refer, check = reference(experiment), code if backend.startswith("dask") else ""
    tasks = [
        Task(refer, arm, seed, fields_of(settings[arm]), check)
        for seed in plan.seeds
        for arm in plan.arms
        if (arm, seed) not in plan.stored
    ]
    return perform_all(tasks, experiment, plan.jobs, backend) if tasks else iter(())


def _conclude(experiment: Experiment, outcome: Outcome, store: Store) -> None:
    """Judge the claims, write ``verdicts.json``, draw the figure. Failures go to ``errors``."""
    results = outcome.results
    results.claims = [judge(claim, results) for claim in experiment.claims]
    content = {
        "name": experiment.name,
        "seeds": list(results.seeds),
        "quick": results.quick,
        "seconds": round(outcome.seconds, 3),
        "claims": [claim.to_dict() for claim in results.claims],
        "arms": list(results.arms),
        "errors": outcome.errors,
    }
    store.write_json(VERDICTS, content)
    try:
        outcome.figure = store.write_figure(experiment.draw(results))
    except MinitxError as error:
        outcome.errors.append(f"{experiment.name}, figure: {error}")
    except Exception as error:
        outcome.errors.append(
            f"{experiment.name}, figure: {describe(error)} (traceback in {store.folder / ERRORS})"
        )
        store.log_error(f"{outcome.errors[-1]}\n{traceback.format_exc()}")


def check_seeds(seeds: int | Sequence[int], seed_start: int = 0) -> tuple[int, ...]:
    """The seeds to run.

    Raises
    ------
    MinitxError
        Unless there is at least one, and none is negative or named twice.
    """
    if isinstance(seeds, int | np.integer):
        if seeds < 1:
            raise MinitxError(f"The number of seeds is at least 1, got {seeds}.")
        if seed_start < 0:
            raise MinitxError(f"The first seed is at least 0, got {seed_start}.")
        return tuple(range(seed_start, seed_start + int(seeds)))
    wanted = tuple(int(seed) for seed in seeds)
    if not wanted or min(wanted) < 0 or len(set(wanted)) < len(wanted):
        raise MinitxError(f"Seeds are different numbers from 0 up, at least one, got {wanted}.")
    return wanted


def design_seeds(count: int | None = None) -> tuple[int, ...]:
    """The first ``count`` of the design seeds; None: all.

    Raises
    ------
    MinitxError
        If there are not so many.
    """
    if count is None:
        return DESIGN_SEEDS
    if not 1 <= count <= len(DESIGN_SEEDS):
        raise MinitxError(
            f"There are {len(DESIGN_SEEDS)} design seeds ({DESIGN_SEEDS[0]} to "
            f"{DESIGN_SEEDS[-1]}), got --seeds {count}; ask for 1 to {len(DESIGN_SEEDS)}."
        )
    return DESIGN_SEEDS[:count]


def check_jobs(jobs: int | None) -> int:
    """The number of processes; None stands for one per core."""
    if jobs is None:
        return cores()
    if jobs < 1:
        raise MinitxError(f"The number of jobs is at least 1, got {jobs}.")
    return int(jobs)


def busy_seconds(runs) -> float:
    """Wall time in which at least one of the runs was going: the length of the union of spans."""
    total, end = 0.0, -np.inf
    for start, stop in sorted((run.finished - run.seconds, run.finished) for run in runs):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return float(total)


def settings_dict_of(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Overrides as JSON has them."""
    return {key: value if isinstance(value, int | float | str) else repr(value)
            for key, value in (overrides or {}).items()}  # fmt: skip


def _versions() -> dict[str, str]:
    from minitx._version import __version__

    return {
        "minitx": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
