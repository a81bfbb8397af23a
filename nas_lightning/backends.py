"""Work on many items by several processes: of this machine, or of a cluster of Ray's or of Dask's.

What is done is packed once, and unpacked once by each process. An item comes to what it comes to in this
process, bit for bit: its threads and whether its kernels are deterministic go along.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Literal, TypeVar

import torch

from nas_lightning.errors import InputError

Backend = Literal["processes", "ray", "dask"]
T = TypeVar("T")
Work = Callable[..., T]
_PACKAGES = {"ray": "ray", "dask": "distributed"}
_PATIENCE = 600  # seconds that a scheduler of our own may take to start, on a machine with much other work
_unpacked: dict[str, Work[Any]] = {}  # of this process: the last one, by its name


def check_backend(backend: Backend, where: str) -> None:
    """Raise for a backend whose package is not installed.

    >>> check_backend("processes", "strategy.backend")
    """
    package = _PACKAGES.get(backend)
    if package is not None and find_spec(package) is None:
        expected = f"expected the package {package} (pip install {package})"
        raise InputError(expected, got=backend, where=where)


def spread(
    work: Work[T],
    items: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    backend: Backend = "processes",
) -> Iterator[T]:
    """`work(*item)` of each, as they come.

    Args:
        work: what is done, a function of modules that the processes have, too.
        items: its arguments.
        workers: processes of this machine; a cluster of Ray's or Dask's that is there has its own.
        backend: `ray` and `dask` join the cluster that RAY_ADDRESS or DASK_SCHEDULER_ADDRESS names.

    >>> list(spread(divmod, [(7, 2), (9, 4)]))
    [(3, 1), (2, 1)]
    """
    if not items or is_alone(min(workers, len(items)), backend):
        return (work(*item) for item in items)
    check_backend(backend, "backend")
    by = {"processes": _by_processes, "ray": _by_ray, "dask": _by_dask}[backend]
    return by(_pack(work), items, workers)


def is_alone(workers: int, backend: Backend) -> bool:
    """Whether this process does everything."""
    return backend == "processes" and workers <= 1


def width(backend: Backend, workers: int) -> int:
    """How many items are at work together."""
    if backend == "ray":
        return max(1, int(_ray(workers).cluster_resources().get("CPU", 1)))
    if backend == "dask":
        return max(1, sum(_dask(workers).nthreads().values()))
    return workers


@dataclass(frozen=True)
class Packed:
    """Work on its way to other processes.

    Args:
        content: pickled, or the file that it is in.
        name: of this work and no other.
        threads: of each process.
        deterministic: whether kernels are to be.
    """

    content: bytes | Path
    name: str
    threads: int
    deterministic: bool

    def unpack(self) -> Work[Any]:
        """The work, unpacked once in a process."""
        import cloudpickle

        if self.name not in _unpacked:
            _unpacked.clear()
            content = self.content
            _unpacked[self.name] = cloudpickle.loads(
                content.read_bytes() if isinstance(content, Path) else content
            )
        return _unpacked[self.name]

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """While an item is at work."""
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def _pack(work: Work[Any]) -> Packed:
    import cloudpickle

    try:
        content = cloudpickle.dumps(work)
    except Exception as error:  # whatever an object of a user's says to being pickled
        said = " ".join(str(error).split()) or type(error).__name__
        expected = f"expected work that other processes can be given, or workers=1: {said}"
        raise InputError(expected, where="backend") from error
    deterministic = torch.are_deterministic_algorithms_enabled()
    return Packed(content, uuid.uuid4().hex, torch.get_num_threads(), deterministic)


def do_item(packed: Packed, item: tuple[Any, ...]) -> Any:
    """One item, in whatever process."""
    with packed.surroundings():
        return packed.unpack()(*item)


def _by_processes(packed: Packed, items: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    from joblib import Parallel, delayed

    assert isinstance(packed.content, bytes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "work"
        file.write_bytes(packed.content)
        filed = Packed(file, packed.name, packed.threads, packed.deterministic)
        count = min(workers, len(items))  # all of which start at once
        parallel = Parallel(n_jobs=count, backend="loky", return_as="generator_unordered", batch_size=1)
        yield from parallel(delayed(do_item)(filed, item) for item in items)


def _by_ray(packed: Packed, items: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    ray = _ray(workers)
    shared = ray.put(packed)
    task = ray.remote(do_item)
    pending = [task.remote(shared, item) for item in items]
    while pending:
        done, pending = ray.wait(pending)
        try:
            yield from ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def _ray(workers: int) -> Any:
    """Ray, connected: to the cluster that is there, else to one of so many processes on this machine."""
    import ray

    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", str(_PATIENCE))
    if not ray.is_initialized():
        try:
            ray.init("auto", log_to_driver=False)
        except ConnectionError:
            ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    return ray


def _by_dask(packed: Packed, items: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    from distributed import as_completed

    client = _dask(workers)
    (shared,) = client.scatter([packed], broadcast=True, hash=False)  # a worker that dies takes no copy along
    futures = [client.submit(do_item, shared, item, pure=False) for item in items]
    for future in as_completed(futures):
        yield future.result()


def _dask(workers: int) -> Any:
    """A client of the scheduler that is there, else of one with so many processes on this machine."""
    import dask
    from distributed import default_client

    if _is_dask_worker():
        expected = "expected another backend in a worker of Dask's, which would wait for itself"
        raise InputError(expected, got="dask", where="backend")
    try:
        return default_client()
    except ValueError:  # there is none
        return connect_dask(dask.config.get("scheduler-address", None), workers)


def connect_dask(address: str | None, workers: int) -> Any:
    """A client of that scheduler, or of one of so many processes on this machine."""
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.ERROR)  # workers come and go: no news
    if address is not None:
        return Client(address, loop=_running_loop())
    settings: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    settings |= {"silence_logs": logging.ERROR, "loop": _running_loop(), "timeout": _PATIENCE}
    return Client(n_workers=workers, threads_per_worker=1, processes=True, **settings)


def _running_loop() -> Any:
    """The event loop of a client, in a thread of its own.

    Dask's own thread has ten seconds to start, and a bare assertion where a machine with much other work
    needs longer.
    """
    from tornado.ioloop import IOLoop

    loops: SimpleQueue[Any] = SimpleQueue()

    async def live() -> None:
        loops.put(IOLoop.current())
        await asyncio.Event().wait()  # as long as this process does

    Thread(target=asyncio.run, args=(live(),), daemon=True).start()
    return loops.get()


def _is_dask_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True
