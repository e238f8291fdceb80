"""Our own threads for the compiled kernels: a few, waiting, each takes one share of the rows.

Why not Numba's or the BLAS's: two pools of threads that do not know of each other fight for the
same cores. Here a coarse kernel (half a transformer block) is cut into as many shares of the batch
as there are threads; each share is one call that holds no lock, and multiplies its own matrices.

How many: ``MINITX_THREADS`` in the environment, or `set_threads`, or else one for each core, at
most `MOST`. Sums over the batch (gradients of weights) are added up share by share, so results are
the same from run to run for a given number of threads, and differ in the last digits between
numbers of threads.
"""

from __future__ import annotations

import os
import queue
import threading

from minitx.errors import MinitxError

MOST = 4  # tiny models do not feed more
# Floating-point operations in a share: about 100 microseconds; waking a thread takes half of that.
WORTHWHILE = 1e7
_count: int | None = None
_workers: list[_Worker] = []
_in_use = threading.Lock()


def get_threads() -> int:
    """How many threads share a kernel's work."""
    if _count is None:
        asked = os.environ.get("MINITX_THREADS", "").strip()
        set_threads(_number(asked) if asked else min(_cores(), MOST))
    return _count


def set_threads(n: int) -> None:
    """Let ``n`` threads share a kernel's work from now on; 1: only the calling thread.

    Raises
    ------
    MinitxError
        If ``n`` is not a whole number of at least 1.
    """
    global _count
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise MinitxError(f"The number of threads must be a whole number of at least 1, got {n!r}.")
    _count = n


def parts(items: int, tile: int, flops: float) -> int:
    """Into how many shares to cut a kernel's work: a share must be worth waking a thread for."""
    return max(1, min(get_threads(), items // tile, int(flops // WORTHWHILE)))


def share(function, count: int, threads: int, *arguments) -> None:
    """Call ``function(first, last, part, *arguments)`` for even shares of ``count`` items.

    The caller takes the last share itself. Returns when all are done; an exception of any share is
    raised here.
    """
    if threads == 1:
        function(0, count, 0, *arguments)
        return
    edges = [count * part // threads for part in range(threads + 1)]
    jobs = [(edges[p], edges[p + 1], p, *arguments) for p in range(threads)]
    if not _in_use.acquire(blocking=False):  # busy for another thread of the user's
        for job in jobs:
            function(*job)
        return
    calls = []
    try:
        while len(_workers) < threads - 1:
            _workers.append(_Worker())
        for worker, job in zip(_workers, jobs[:-1], strict=False):
            calls.append(worker.begin(function, job))
        function(*jobs[-1])
    finally:
        errors = [call.finish() for call in calls]
        _in_use.release()
    for error in errors:
        if error is not None:
            raise error


class _Worker:
    """A thread that sleeps until it is given a call."""

    def __init__(self):
        self._inbox = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="minitx kernels", daemon=True).start()

    def begin(self, function, job):
        call = _Call()
        self._inbox.put((function, job, call))
        return call

    def _loop(self):
        while True:
            function, job, call = self._inbox.get()
            try:
                function(*job)
            except BaseException as error:
                call.error = error
            call.done.release()
            function = job = call = None  # keep no arrays alive while asleep


class _Call:
    """What a worker is doing: each call has its own lock, so that none is taken for another."""

    def __init__(self):
        self.error, self.done = None, threading.Lock()
        self.done.acquire()

    def finish(self):
        """Wait for the end; the exception that was raised, or None.

        Ctrl-C, too, is waited past and handed on then: the call still writes to our arrays.
        """
        interrupt = None
        while True:
            try:
                self.done.acquire()
            except KeyboardInterrupt as error:
                interrupt = error
            else:
                return interrupt or self.error


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise MinitxError(f"MINITX_THREADS must be a whole number, got {text!r}.") from None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _forget_threads() -> None:
    """Threads do not survive a fork: a child process starts its own."""
    global _in_use
    _workers.clear()
    _in_use = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
