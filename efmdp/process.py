"""How a process that trains behaves: its threads, its memory, and what Ctrl-C does to it."""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

PR_SET_PDEATHSIG = 1  # of Linux's prctl


@contextmanager
def tuned_process(threads: int) -> Iterator[None]:
    """Fixed threads, and no slow arithmetic on tiny numbers. Torch's threads inherit that if they do not exist yet."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def return_free_memory() -> None:
    """Give freed memory back to the system: glibc keeps it in pieces between what is in use, more with every epoch.
    Elsewhere this does nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_megabytes() -> float:
    """The most memory that this process ever held."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class Interruption:
    """Ctrl-C, or a polite kill, becomes a wish to stop that a loop grants when it is ready."""

    wanted = False

    def __enter__(self) -> "Interruption":
        self.previous = {s: signal.signal(s, self._wish) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _wish(self, *_: object) -> None:
        self.wanted = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)


def die_with(parent: int) -> None:
    """Be killed when the process that started this one dies, however it dies; on Linux, elsewhere this does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it is dead already
        sys.exit(1)
