"""Run arms × seeds in parallel; each comes back as it finishes, none takes another with it.

Every process works on one thread (BLAS and kernels), so that the numbers do not hang on how many
processes there are, and the cores are not fought for.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from minitx.errors import MinitxError, unknown
from minitx.lab.claims import as_number
from minitx.lab.experiment import Experiment
from minitx.lab.loading import Reference, describe, resolve
from minitx.lab.results import Run, from_json, to_json

BACKENDS = ("loky", "sequential", "dask")
DIED = "the process died (killed, or out of memory)"


@dataclass(frozen=True)
class Task:
    """One run to do, as it is sent to a worker."""

    reference: Reference
    arm: str
    seed: int
    settings: dict[str, Any]  # fields, not the object: its class may be unknown to a worker yet
    code: str = ""  # where given, the worker's own code must be this version
    parent: int = 0  # where given, the process whose end is the worker's end


@dataclass(frozen=True)
class Done:
    """What came of a task: measurements as JSON text, or what went wrong."""

    arm: str
    seed: int
    measurements: str = ""
    seconds: float = 0.0
    finished: float = 0.0
    error: str = ""
    trace: str = ""


def perform(task: Task, experiment: Experiment | None = None) -> Done:
    """Do one run. Whatever it raises comes back as text (an exception may not pickle)."""
    os.environ["MINITX_THREADS"] = "1"
    if task.parent:
        _end_with(task.parent)
    start = time.perf_counter()
    try:
        experiment = experiment or resolve(task.reference)
        if task.code:
            _check_version(experiment, task.code)
        with _one_thread():
            measurements = experiment.measure(experiment.Settings(**task.settings), task.seed)
        text = to_json(measurements)
        run = Run(task.arm, task.seed, from_json(text), 0.0)
        for claim in experiment.claims:  # better now than when all runs are done
            if task.arm in (claim.arm, claim.minus):
                as_number(run, claim.measure)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a run that calls sys.exit must not end the others either
        seconds, trace = time.perf_counter() - start, traceback.format_exc()
        words = str(error) if isinstance(error, MinitxError) else describe(error)
        return Done(task.arm, task.seed, seconds=seconds, error=words, trace=trace)
    return Done(task.arm, task.seed, text, time.perf_counter() - start, time.time())


def perform_all(
    tasks: list[Task], experiment: Experiment, jobs: int, backend: str
) -> Iterator[Done]:
    """Do all tasks, yielding each as it finishes.

    A worker that dies (killed by the system, a crash in compiled code) takes down the pool, and
    what was in flight cannot be told from what killed it. The rest is then done one by one:
    whoever kills its process again is reported, the others finish.
    """
    kind, _, address = backend.partition(":")
    if kind == "sequential" or (kind == "loky" and jobs == 1):
        yield from (perform(task, experiment) for task in tasks)
        return
    if kind == "loky" and os.name == "posix":
        tasks = [replace(task, parent=os.getpid()) for task in tasks]
    left = {(task.arm, task.seed): task for task in tasks}
    pool = _dask(address, jobs) if kind == "dask" else _loky()
    with pool as options:
        try:
            for done in _parallel(list(left.values()), jobs, options):
                del left[done.arm, done.seed]
                yield done
            return
        except Exception as error:
            if not _is_dead_worker(error):
                raise
        for task in list(left.values()):
            try:
                # Two jobs for one task: with one, joblib would run it in this very process.
                yield from _parallel([task], 2, options)
            except Exception as error:
                if not _is_dead_worker(error):
                    raise
                yield Done(task.arm, task.seed, error=DIED, trace=f"{error!r}")


def check_backend(backend: str) -> None:
    """Raise a `MinitxError` unless it is ``loky``, ``sequential``, ``dask`` or ``dask:ADDRESS``."""
    kind = backend.partition(":")[0]
    if kind not in BACKENDS or (kind != "dask" and kind != backend):
        raise unknown("backend", backend, (*BACKENDS, "dask:ADDRESS"))
    if kind == "dask":
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise MinitxError(
                "The dask backend needs dask.distributed: pip install 'minitx[cluster]'."
            ) from None


def cores() -> int:
    """The number of cores that this process may use."""
    from joblib import cpu_count

    return cpu_count()


def _parallel(tasks: list[Task], jobs: int, options: dict[str, Any]) -> Iterator[Done]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(**options):
        pool = Parallel(
            n_jobs=jobs or -1, return_as="generator_unordered", batch_size=1, max_nbytes=None
        )
        with _deaf_to_ctrl_c():
            stream = pool(delayed(perform)(task) for task in tasks)
    try:
        yield from stream
    finally:
        stream.close()  # on Ctrl-C: cancel what is in flight instead of waiting for it


@contextmanager
def _loky() -> Iterator[dict[str, Any]]:
    before = {name: os.environ.get(name) for name in ("MINITX_THREADS", "PYTHONWARNINGS")}
    # Read by the processes as they start. The second keeps loky's tracker of semaphores from
    # complaining, on the user's screen, that the workers of a broken-off run left some behind.
    os.environ["MINITX_THREADS"] = "1"
    quiet = ("ignore:resource_tracker", before["PYTHONWARNINGS"])
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, quiet))
    try:
        yield {"backend": "loky", "inner_max_num_threads": 1}
    except (KeyboardInterrupt, GeneratorExit):
        with suppress(ImportError):
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C while processes are started: they inherit that, and never hear of it.

    It is for this process alone to end them, without a traceback from each.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what becomes of signals
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _dask(address: str, jobs: int) -> Iterator[dict[str, Any]]:
    from distributed import Client

    try:
        client = (
            Client(address, timeout="20s")
            if address
            else Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
        )
    except (OSError, ValueError) as error:
        raise MinitxError(f"No Dask scheduler answers at {address!r}: {error}.") from error
    with client:
        yield {"backend": "dask"}


@lru_cache(maxsize=1)
def _end_with(parent: int) -> None:
    """End this process when its parent is gone: after a kill -9 nobody reads what it computes.

    Without this, orphans work off what was queued, beside the workers of the next start.
    """

    def watch() -> None:
        while os.getppid() == parent:  # an orphan is given another parent (not on Windows)
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_dead_worker(error: Exception) -> bool:
    return type(error).__name__ in {"TerminatedWorkerError", "BrokenProcessPool", "KilledWorker"}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Work on one thread, also in a process whose BLAS and kernels already have several."""
    # Not imported: the lab knows of no kernels, but if they are there they must obey too.
    kernels = sys.modules.get("minitx.kernels.threads")
    before = kernels.get_threads() if kernels else 1
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        threadpool_limits = nullcontext
    try:
        if kernels:
            kernels.set_threads(1)
        with threadpool_limits(1):
            yield
    finally:
        if kernels:
            kernels.set_threads(before)


def _check_version(experiment: Experiment, code: str) -> None:
    from minitx.lab.code_version import code_version

    mine = code_version(experiment)
    if mine != code:
        raise MinitxError(
            f"the worker has another version of the code ({mine}, not {code}); install the same one"
        )
