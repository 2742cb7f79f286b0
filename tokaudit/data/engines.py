"""Who does the work: processes of this machine, or a Ray cluster. Both give the same results."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from tokaudit.contract.data import DataOptions
from tokaudit.errors import UsageError
from tokaudit.isolation.child import limit
from tokaudit.parallel import Lost, cores, each
from tokaudit.text import inert

G = TypeVar("G")
R = TypeVar("R")

SECONDS = 3600  # for one item; a quarter of a gigabyte takes seconds, from a slow disk minutes
MEMORY = 8 << 30  # bytes of address space that a process may take beyond what it began with
_PENDING = 4  # tasks for each processor of a cluster that wait for it
_CAUSE = 200  # characters


class Engine(Protocol):
    """Applies ``work`` to every item, in any order; ``width`` is how many are at work at once."""

    width: int

    def __call__(self, work: Callable[[G], R], items: Sequence[G]) -> Iterator[tuple[int, R | Lost]]:
        """(number of the item, its result). An item whose process dies is Lost; exceptions are raised."""
        ...


def engine(options: DataOptions) -> Engine:
    """Raises UsageError for an engine that is not installed."""
    if options.engine == "local":
        return _Local(options.jobs or cores())
    return _Ray()


class _Local:
    def __init__(self, jobs: int) -> None:
        self.width = jobs

    def __call__(self, work: Callable[[G], R], items: Sequence[G]) -> Iterator[tuple[int, R | Lost]]:
        def confined(item: int) -> R:
            _confine()
            return work(items[item])

        yield from each(confined, len(items), jobs=self.width, seconds=SECONDS, look=lambda: None)


def _confine() -> None:
    """A hostile file may promise any amount of data: its process fails to get the memory, not the machine."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:  # no Linux: macOS takes the limit and ignores it
        return
    limit(resource.RLIMIT_AS, used + MEMORY, used + MEMORY)


class _Ray:
    """The cluster that RAY_ADDRESS names or that this process belongs to, else one on this machine.

    Its workers open the files by the same paths: they must lie on a file system that all of them see.
    """

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError(
                "--engine ray needs Ray, which is not installed", hint="pip install 'tokaudit[ray]'"
            ) from None
        self.ray: Any = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def __call__(self, work: Callable[[G], R], items: Sequence[G]) -> Iterator[tuple[int, R | Lost]]:
        ray = self.ray
        # A process is used again for other items, so one that a hostile file kills is tried no second time.
        remote = ray.remote(num_cpus=1, max_retries=0)(_apply)
        most = _PENDING * self.width
        waiting = iter(range(len(items)))
        running: dict[Any, int] = {}
        while True:
            for item in waiting:
                running[remote.remote(work, items[item])] = item
                if len(running) >= most:
                    break
            if not running:
                return
            done, _ = ray.wait(list(running))
            for reference in done:
                yield running.pop(reference), self._result(reference)

    def _result(self, reference: Any) -> Any:
        exceptions = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, Exception) else error from None
        except exceptions.RayError as error:
            words = " ".join(inert(str(error)).split())[:_CAUSE]
            return Lost(f"its Ray worker failed: {words}")


def _apply(work: Callable[[G], R], item: G) -> R:
    return work(item)


def spread(
    engine: Engine, work: Callable[[Sequence[G]], R], groups: Sequence[Sequence[G]]
) -> Iterator[tuple[Sequence[G], R | Lost]]:
    """Every group and its result. One whose process died is done again, item by item."""
    again: list[Sequence[G]] = []
    for number, result in engine(work, groups):
        group = groups[number]
        if isinstance(result, Lost) and len(group) > 1:
            again += [(item,) for item in group]
        else:
            yield group, result
    for number, result in engine(work, again) if again else ():
        yield again[number], result
