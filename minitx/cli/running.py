"""``minitx run``: one experiment after the other, whatever becomes of each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from minitx.cli import INTERRUPTED, NOT_SUPPORTED, OK, tables
from minitx.cli.progress import BarReporter, reporter
from minitx.cli.select import select
from minitx.errors import MinitxError
from minitx.lab import Experiment, Outcome
from minitx.lab.loading import describe
from minitx.lab.runner import check_jobs, check_seeds, run
from minitx.lab.store import check_folder
from minitx.lab.workers import check_backend


def run_experiments(targets: list[str], options: dict[str, Any]) -> int:
    """Run what the targets stand for, print tables of claims, return the exit code.

    Parameters
    ----------
    targets : list of str
        Names, families, ``all``, files.
    options : dict
        Arguments of `minitx.lab.run`.

    Raises
    ------
    MinitxError
        On wrong usage, before anything is run.
    """
    check_seeds(options["seeds"], options["seed_start"])
    check_jobs(options["jobs"])
    check_backend(options["backend"])
    experiments: dict[str, Experiment] = {}
    broken: dict[str, str] = {}
    for target in targets:
        found, wrong = select(target)
        experiments.update({each.name: each for each in found})
        broken.update(wrong)
    for each in experiments.values():
        each.settings(options["overrides"], options["quick"])  # a wrong --set stops us here
    check_folder(Path(options["out"]))
    several = len(experiments) + len(broken) > 1

    out, err = tables.console(), tables.console(stderr=True)
    for each in experiments.values():
        for key in options["overrides"]:
            if keep := [name for name, arm in each.arms.items() if key in arm.overrides]:
                words = f"{each.name}: arm{'s' * (len(keep) > 1)} {', '.join(keep)} keep"
                err.print(f"{words}{'s' * (len(keep) == 1)} {key} as it is.", soft_wrap=True)
    rows: list[tuple[str, str, Outcome | str]] = []
    for each in experiments.values():
        outcome = _run_one(each, options, several, err)
        if outcome is None:
            return INTERRUPTED
        rows.append((each.name, each.question, outcome))
        if isinstance(outcome, str):
            err.print(f"{each.name}: {outcome}", style="red", soft_wrap=True)
        else:
            tables.claims_table(out, outcome)
    rows += [(name, "", f"It cannot be imported: {why}.") for name, why in broken.items()]
    if several:
        tables.summary_table(out, sorted(rows, key=lambda row: row[0]))
    good = all(not isinstance(o, str) and o.supported for _, _, o in rows)
    return OK if good else NOT_SUPPORTED


def _run_one(each: Experiment, options: dict[str, Any], several: bool, err) -> Outcome | str | None:
    """The outcome; a sentence if it failed as a whole (only among several); None after Ctrl-C."""
    from minitx import kernels

    progress = reporter(err)
    try:
        return run(each, **options, context={"kernels": kernels.active()}, reporter=progress)
    except KeyboardInterrupt:
        _close(progress)
        _say_how_to_go_on(progress, Path(options["out"]) / each.name)
        return None
    except MinitxError as error:
        if not several:
            raise
        return str(error)
    except Exception as error:
        if not several:
            raise
        return f"Something went wrong: {describe(error)}."
    finally:
        _close(progress)


def _close(progress) -> None:
    if isinstance(progress, BarReporter):
        progress.close()


def _say_how_to_go_on(progress, folder: Path) -> None:
    print(
        f"minitx: Stopped with {progress.finished} of {progress.total} runs stored in {folder}; "
        "the same command goes on from there.",
        file=sys.stderr,
    )
