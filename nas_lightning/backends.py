"""Map a function over items in several processes of this machine, or of a Ray or Dask cluster.

The function is pickled once, and unpickled once by each process. Results equal those of a single process bit
for bit: processes use the same number of threads and the same setting of deterministic kernels.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Literal, TypeVar

import torch

from nas_lightning.errors import InputError
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.processes import claim_gpus, rank_and_world

Backend = Literal["processes", "ray", "dask"]
T = TypeVar("T")
Work = Callable[..., T]
_PACKAGES = {"ray": "ray", "dask": "distributed"}
_PATIENCE = 600  # seconds until a local scheduler must have started, even on a busy machine
_unpacked: dict[str, Work[Any]] = {}  # cache of this process: the last function, by its name


def check_backend(backend: Backend, where: str) -> None:
    """Raise for a backend whose package is not installed.

    >>> check_backend("processes", "strategy.backend")
    """
    package = _PACKAGES.get(backend)
    if package is not None and find_spec(package) is None:
        expected = f"This backend needs the package {package} (pip install {package})"
        raise InputError(expected, got=backend, where=where)


def spread(
    work: Work[T],
    items: Sequence[tuple[Any, ...]],
    *,
    workers: int = 1,
    backend: Backend = "processes",
    device: torch.device = CPU,
) -> Iterator[T]:
    """Yield `work(*item)` of each item, in order of completion.

    Args:
        work: the function; all processes must be able to import its modules.
        items: the arguments of each call.
        workers: number of processes on this machine; an existing cluster has its own number.
        backend: `ray` and `dask` connect to the cluster of RAY_ADDRESS or DASK_SCHEDULER_ADDRESS if set.
        device: where the function computes. If it is the first GPU, the processes share out all visible ones.

    >>> list(spread(divmod, [(7, 2), (9, 4)]))
    [(3, 1), (2, 1)]
    """
    if not items or is_alone(min(workers, len(items)), backend):
        return (work(*item) for item in items)
    check_backend(backend, "backend")
    by = {"processes": _by_processes, "ray": _by_ray, "dask": _by_dask}[backend]
    share_gpus = device.type == "cuda" and not device.index and rank_and_world()[1] == 1
    return by(_pack(work, share_gpus), items, workers)


def is_alone(workers: int, backend: Backend) -> bool:
    """Return whether this process does all the work."""
    return backend == "processes" and workers <= 1


def width(backend: Backend, workers: int) -> int:
    """Return how many items are processed in parallel."""
    if backend == "ray":
        return max(1, int(_ray(workers).cluster_resources().get("CPU", 1)))
    if backend == "dask":
        return max(1, sum(_dask(workers).nthreads().values()))
    return workers


@dataclass(frozen=True)
class Packed:
    """A pickled function for other processes.

    Args:
        content: the pickled function, or a file with it.
        name: a unique name.
        threads: number of threads of each process.
        deterministic: whether to use deterministic kernels.
        share_gpus: whether each process uses one of the visible GPUs.
    """

    content: bytes | Path
    name: str
    threads: int
    deterministic: bool
    share_gpus: bool

    def unpack(self) -> Work[Any]:
        """Return the function, which is unpickled once per process."""
        import cloudpickle

        if self.share_gpus:
            claim_gpus()
        if self.name not in _unpacked:
            _unpacked.clear()
            content = self.content
            _unpacked[self.name] = cloudpickle.loads(
                content.read_bytes() if isinstance(content, Path) else content
            )
        return _unpacked[self.name]

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Set the number of threads and deterministic kernels within the context."""
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def _pack(work: Work[Any], share_gpus: bool) -> Packed:
    import cloudpickle

    try:
        content = cloudpickle.dumps(work)
    except Exception as error:  # custom objects may raise any error when they are pickled
        said = " ".join(str(error).split()) or type(error).__name__
        expected = f"The work must be picklable for other processes; otherwise use workers=1: {said}"
        raise InputError(expected, where="backend") from error
    deterministic = torch.are_deterministic_algorithms_enabled()
    return Packed(content, uuid.uuid4().hex, torch.get_num_threads(), deterministic, share_gpus)


def do_item(packed: Packed, item: tuple[Any, ...]) -> Any:
    """Process one item, in any process."""
    with packed.environment():
        return packed.unpack()(*item)


def _by_processes(packed: Packed, items: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    from joblib import Parallel, delayed

    assert isinstance(packed.content, bytes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "work"
        file.write_bytes(packed.content)
        filed = replace(packed, content=file)
        count = min(workers, len(items))  # joblib starts all processes at once
        parallel = Parallel(n_jobs=count, backend="loky", return_as="generator_unordered", batch_size=1)
        yield from parallel(delayed(do_item)(filed, item) for item in items)


def _by_ray(packed: Packed, items: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    ray = _ray(workers)
    shared = ray.put(packed)
    task = ray.remote(do_item)
    gpus = ray.cluster_resources().get("GPU", 0) if packed.share_gpus else 0
    if gpus:  # Ray hides the GPUs from tasks that request none
        task = task.options(num_gpus=min(1, gpus / width("ray", workers)))
    pending = [task.remote(shared, item) for item in items]
    while pending:
        done, pending = ray.wait(pending)
        try:
            yield from ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def _ray(workers: int) -> Any:
    """Connect to the existing Ray cluster, or start a local one with so many processes."""
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
    (shared,) = client.scatter([packed], broadcast=True, hash=False)  # survives the death of a worker
    futures = [client.submit(do_item, shared, item, pure=False) for item in items]
    for future in as_completed(futures):
        yield future.result()


def _dask(workers: int) -> Any:
    """Return a client of the existing Dask scheduler, or of a local one with so many processes."""
    import dask
    from distributed import default_client

    if _is_dask_worker():
        expected = "A Dask worker cannot use the backend `dask`: it would wait for itself"
        raise InputError(expected, where="backend")
    try:
        return default_client()
    except ValueError:  # no client yet
        return connect_dask(dask.config.get("scheduler-address", None), workers)


def connect_dask(address: str | None, workers: int) -> Any:
    """Return a client of the scheduler at an address, or of a local one with so many processes."""
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.ERROR)  # starting and ending workers are normal
    if address is not None:
        return Client(address, loop=_running_loop())
    settings: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    settings |= {"silence_logs": logging.ERROR, "loop": _running_loop(), "timeout": _PATIENCE}
    return Client(n_workers=workers, threads_per_worker=1, processes=True, **settings)


def _running_loop() -> Any:
    """Start the event loop of a client in a thread.

    Dask would start it, too, but fails with an assertion if that takes ten seconds on a busy machine.
    """
    from tornado.ioloop import IOLoop

    loops: SimpleQueue[Any] = SimpleQueue()

    async def live() -> None:
        loops.put(IOLoop.current())
        await asyncio.Event().wait()  # until the process ends

    Thread(target=asyncio.run, args=(live(),), daemon=True).start()
    return loops.get()


def _is_dask_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True
