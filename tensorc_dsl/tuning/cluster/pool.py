"""The workers of a Dask scheduler: those that this process serves, and those that it sees there and gives orders to.

Dask connects, tells who is there, and carries bytes. Which worker does what is decided in the search process: each order is
for one worker, so no order waits for a resource that nobody has, and one of a worker that is gone is given to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from socket import gethostname
from types import TracebackType
from typing import Any, Protocol, Self, cast

import msgspec

from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.cluster.access import Address, read_token, require_dask
from tensorc_dsl.tuning.cluster.station import Answer, Facts, Order, Standing, Station, TimeOrder, answer_of, sealed
from tensorc_dsl.tuning.machine.host import host_target
from tensorc_dsl.tuning.records.trial import package_key


@problem(
    "E0875",
    "there is no scheduler at `{address}`: {why}",
    help="start one, `dask scheduler --host 127.0.0.1 --port 8786`, and workers, `tensorc-dsl worker {address}`",
)
def NO_SCHEDULER(*, address: str, why: str) -> None: ...
@problem("E0876", "no worker at `{address}` times kernels for this search; {there}", help="{repair}")
def NOBODY(*, address: str, there: str, repair: str) -> None: ...
@problem(
    "E0877",
    "the workers at `{address}` are {count} kinds of machines, whose times cannot be compared: {kinds}",
    help="tune for each of them, at the same time if you like: {repair}",
)
def SEVERAL(*, address: str, count: int, kinds: str, repair: str) -> None: ...


ANNOUNCED = "tensorc-dsl"
"""The name of what workers announce to Dask."""

DEVICE = "tensorc-dsl-device"
"""The name of Dask's resource of which a worker that times kernels has one. So timings of several searches take turns."""

SLOTS = 64
"""Orders that a worker of Dask holds at once; how many are carried out is up to the station."""

HEARTBEAT = "500 ms"

PRIVATE = "127.0.0.1:0"
"""Where Dask serves what it tells browsers, which is served in any case."""

CONNECT_SECONDS = 10.0
"""How long a scheduler may take to answer."""

ANSWER_SECONDS = 5.0
"""How long it may take to fetch the answers of a worker that are there."""

AGAIN_SECONDS = 1.0
"""How long a worker waits before it looks for a scheduler again that was lost."""

_stations: dict[str, Station] = {}
"""The stations of this process by their ids."""


async def perform(station: str, data: bytes) -> bytes:
    """The answer of a station of this process; Dask calls this in the process of the worker."""
    found = _stations.get(station)
    if found is None:
        raise LookupError("the worker is another one by now")
    return await found.perform(data)


# The side of a worker.


def _announced(station: Station) -> dict[str, Any]:
    """The arguments of a worker of Dask that has this station."""
    return {
        "name": f"{station.facts.machine}-{station.facts.id[:8]}",
        "nthreads": SLOTS,
        "resources": {DEVICE: 1} if station.facts.times else {},
        "startup_information": {ANNOUNCED: lambda _worker: msgspec.json.encode(station.facts).decode()},  # pyright: ignore[reportUnknownLambdaType]
        "metrics": {ANNOUNCED: lambda _worker: msgspec.json.encode(station.standing()).decode()},  # pyright: ignore[reportUnknownLambdaType]
        "heartbeat_interval": HEARTBEAT,
        "memory_limit": 0,  # its children have limits of their own
        "dashboard": False,
        "dashboard_address": PRIVATE,
    }


def serve(
    address: Address, stations: Sequence[Station], *, patience: float, told: Callable[[str], None] = lambda _: None
) -> None:
    """Work for the scheduler until SIGTERM or Ctrl-C. One that is lost is looked for again for `patience` seconds.

    Raises TschedError (E0871, E0873, E0875).
    """
    require_dask()
    _be_quiet()
    _stations.update((one.facts.id, one) for one in stations)

    async def work() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await asyncio.gather(*(_work(address, one, patience, told, ended) for one in stations))

    try:
        asyncio.run(work())
    finally:
        for one in stations:
            del _stations[one.facts.id]
            one.close()


async def _work(
    address: Address, station: Station, patience: float, told: Callable[[str], None], ended: asyncio.Event
) -> None:
    from distributed import Worker

    security, until = address.security(), time.monotonic() + patience
    more: dict[str, Any] = {} if address.encrypted else {"host": "127.0.0.1"}  # else it would listen to the network
    if security is not None:
        more["security"] = security
    while not ended.is_set():
        why = ""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                worker: Any = await cast(Any, Worker)(address.text, **more, **_announced(station))
        except (OSError, TimeoutError, RuntimeError) as e:
            why = reason_of(e)
        else:
            told(f"{worker.name} works for {address.text}")
            finished, stop = asyncio.ensure_future(worker.finished()), asyncio.ensure_future(ended.wait())
            await asyncio.wait([finished, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if not finished.done():
                await worker.close(timeout=1, executor_wait=False)
                await finished
                return
            told("the scheduler is gone; looking for it")
            until = time.monotonic() + patience
        if time.monotonic() >= until:
            raise TschedError(NO_SCHEDULER(None, address=address.text, why=why or "it went away"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), AGAIN_SECONDS)


def reason_of(e: BaseException) -> str:
    """The first cause, in a line; what a time limit cancels says nothing."""
    while e.__cause__ is not None and not isinstance(e.__cause__, asyncio.CancelledError):
        e = e.__cause__
    words = str(e).strip().splitlines()
    return words[0] if words else "it does not answer" if isinstance(e, TimeoutError) else type(e).__name__


def _be_quiet() -> None:
    """Dask's loggers say on standard error what is shown here in other words; each has a level once Dask is imported."""
    import_module("distributed")
    for name in [n for n in logging.root.manager.loggerDict if n.partition(".")[0] in ("distributed", "tornado")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)


# The side of a search.


@frozen
class Seen:
    """A worker, and what it says of itself; `unfit` is why this process gives it no orders, if it does not."""

    address: str
    facts: Facts
    standing: Standing
    unfit: str = ""

    @property
    def name(self) -> str:
        """The name of its machine."""
        return self.facts.machine


@frozen
class Given:
    """An order that a worker has."""

    order: Order
    worker: str
    future: Any


@frozen
class Ended:
    """An order whose answer is here, or which a worker did not carry out, and why."""

    order: Order
    worker: str
    answer: Answer | None
    why: str = ""


class Lost(Exception):
    """The scheduler is gone."""


class User(Protocol):
    """A search that gives orders to the workers of a pool, beside others."""

    def feed(self) -> None:
        """Give out what can be given. Raises Lost."""
        ...

    def take(self, ended: Ended) -> bool:
        """Take an order that has ended, if it is of this search; whether it is."""
        ...


def _synced(client: Any, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What Dask's call returns. Raises TimeoutError, and ConnectionAbortedError where it was cancelled, as with the end of a
    worker: `distributed.utils.sync` has neither a result nor an error then, and reads a name without a value.
    """
    try:
        return client.sync(what, *args, callback_timeout=CONNECT_SECONDS, **kwargs)
    except UnboundLocalError as e:
        raise ConnectionAbortedError("a call of Dask was cancelled") from e


async def _fetched(client: Any, keys: Sequence[str]) -> dict[str, bytes]:
    """The answers of one worker by their keys; none if one is lost.

    The `gather` of Dask's client fetches those of several calls together, and waits for lost ones for ever.
    """
    said = await client.scheduler.gather(keys=[*keys])
    return said["data"] if said["status"] == "OK" else {}


async def _gathered(client: Any, groups: Sequence[Sequence[str]]) -> dict[str, bytes]:
    """The answers with these keys. Each group, of one worker, is fetched by itself: where a worker is gone, its own are lost.

    Raises OSError if the scheduler is gone.
    """
    fetched = (asyncio.wait_for(_fetched(client, group), ANSWER_SECONDS) for group in groups)
    answers: dict[str, bytes] = {}
    for data in await asyncio.gather(*fetched, return_exceptions=True):
        if isinstance(data, (TimeoutError, asyncio.CancelledError)):
            continue
        if isinstance(data, BaseException):
            raise data
        answers |= data
    return answers


class Pool:
    """The workers of a scheduler, as this process sees them, with the token. A context that ends the connection.

    An address `local:N` is so many stations for `here`, made by `station`, in this process: no port is open.
    """

    def __init__(self, address: Address, token: bytes, station: Callable[[int], Station] | None = None) -> None:
        require_dask()
        _be_quiet()
        self.address = address
        self._token = token
        self._own = [station(n) for n in range(address.here)] if station is not None else []
        self._client: Any = None
        self._cluster: Any = None
        self._given: dict[str, Given] = {}
        self._done: SimpleQueue[str] = SimpleQueue()
        self.users: list[User] = []
        """The searches that have workers of it. Whichever waits feeds all, so that no worker waits for a search that does."""
        self.connections = 0
        """How often it was connected: orders of a connection before are forgotten."""
        self.sent = 0
        """The bytes of all orders and answers."""
        self.spent = 0.0
        """Seconds in which this thread talked to Dask."""
        self._code = package_key()

    def connect(self) -> None:
        """Connect, again if the connection broke. What was given to workers is forgotten.

        Raises TschedError (E0871, E0873, E0875).
        """
        self._disconnect()
        from distributed import Client

        try:
            where = self._begin() if self.address.here else self.address.text
            security = self.address.security()
            more: dict[str, Any] = {} if security is None else {"security": security}
            self._client = cast(Any, Client)(where, timeout=CONNECT_SECONDS, set_as_default=False, **more)
            listening = str(self._identity()["address"])
        except (OSError, TimeoutError, Lost) as e:
            self._disconnect()
            raise TschedError(NO_SCHEDULER(None, address=self.address.text, why=reason_of(e))) from None
        self.address.require_private(listening)
        self.connections += 1

    def _begin(self) -> Any:
        """The workers of this process, with a scheduler: they are connected by its memory."""
        from distributed import Scheduler, SpecCluster, Worker

        if self._cluster is None:
            for one in self._own:
                _stations[one.facts.id] = one
            scheduler = {
                "cls": Scheduler,
                "options": {"protocol": "inproc", "dashboard": False, "dashboard_address": PRIVATE},
            }
            workers = {
                n: {"cls": Worker, "options": {"protocol": "inproc", **_announced(one)}}
                for n, one in enumerate(self._own)
            }
            self._cluster = cast(Any, SpecCluster)(workers=workers, scheduler=scheduler, silence_logs=False)
        return self._cluster

    def _identity(self) -> Mapping[str, Any]:
        """What the scheduler says of itself and its workers. Raises Lost."""
        client = self._client
        if client is None or client.status != "running":
            raise Lost("the connection is broken")
        began = time.perf_counter()
        try:
            return cast(Mapping[str, Any], _synced(client, client.scheduler.identity, n_workers=-1))
        except (OSError, TimeoutError) as e:
            raise Lost(reason_of(e)) from e
        finally:
            self.spent += time.perf_counter() - began

    def workers(self) -> list[Seen]:
        """The workers that are there now, in the order of their names. Raises Lost."""
        found: list[Seen] = []
        for address, one in self._identity()["workers"].items():
            try:
                facts = msgspec.json.decode(one[ANNOUNCED], type=Facts)
                standing = msgspec.json.decode(one["metrics"][ANNOUNCED], type=Standing)
            except (KeyError, TypeError, msgspec.DecodeError):
                continue  # another program's
            found.append(Seen(str(address), facts, standing, self._unfit(facts)))
        return sorted(found, key=lambda s: (s.facts.machine, s.facts.id))

    def _unfit(self, facts: Facts) -> str:
        if not facts.is_proved(self._token):
            return "it has another token"
        if facts.code != self._code:
            return f"it has another tensorc-dsl ({facts.version}, code {facts.code[:8]}; here {self._code[:8]})"
        return ""

    def give(self, worker: Seen, order: Order) -> None:
        """Have the worker carry out the order; `ended` will tell. Raises Lost."""
        began = time.perf_counter()
        data = sealed(self._token, order)
        self.sent += len(data)
        resources = None if not isinstance(order, TimeOrder) else {DEVICE: 1}
        try:
            future = self._client.submit(
                perform, worker.facts.id, data, key=f"{order.id}@{worker.facts.id[:8]}-{time.monotonic_ns()}",
                workers=[worker.address], resources=resources, allow_other_workers=False, pure=False,
            )  # fmt: skip
        except Exception as e:
            raise Lost(reason_of(e)) from e
        self._given[future.key] = Given(order, worker.address, future)
        future.add_done_callback(partial(self._tell, future.key))
        self.spent += time.perf_counter() - began

    def _tell(self, key: str, _future: Any) -> None:
        self._done.put(key)

    def serve(self, seconds: float) -> None:
        """Feed all users, and give each what has ended of its own, once there is something, or that many seconds are over.

        Raises Lost.
        """
        for user in [*self.users]:
            user.feed()
        for ended in self._ended_orders(seconds):
            any(user.take(ended) for user in self.users)

    def _ended_orders(self, seconds: float) -> list[Ended]:
        """The orders that have ended, once there is one, or that many seconds are over. Raises Lost."""
        keys: list[str] = []
        with contextlib.suppress(Empty):
            keys.append(self._done.get(timeout=seconds))
            while True:
                keys.append(self._done.get_nowait())
        began = time.perf_counter()
        found = [given for key in keys if (given := self._given.pop(key, None)) is not None]
        try:
            return self._answers(found)
        finally:
            self.spent += time.perf_counter() - began

    def _answers(self, found: Sequence[Given]) -> list[Ended]:
        by_worker: dict[str, list[str]] = {}
        for one in found:
            if one.future.status == "finished":
                by_worker.setdefault(one.worker, []).append(one.future.key)
        said: dict[str, bytes] = {}
        if by_worker:
            try:
                said = _synced(self._client, _gathered, self._client, [*by_worker.values()])
            except (TimeoutError, ConnectionAbortedError):
                pass
            except OSError as e:
                raise Lost(reason_of(e)) from e
        return [self._ended(one, said.get(one.future.key)) for one in found]

    def _ended(self, one: Given, data: bytes | None) -> Ended:
        if data is None:
            status, why = one.future.status, "its answer was lost"
            if status == "error":
                why = reason_of(one.future.exception())
            one.future.release()
            return Ended(one.order, one.worker, None, why)
        self.sent += len(data)
        one.future.release()
        try:
            return Ended(one.order, one.worker, answer_of(self._token, data))
        except (PermissionError, msgspec.DecodeError) as e:
            return Ended(one.order, one.worker, None, str(e))

    def forget(self, workers: Sequence[str], begins: str = "") -> list[Order]:
        """Expect nothing of these workers any more of the orders whose ids begin so. Returns the orders that they had."""
        gone = [key for key, g in self._given.items() if g.worker in workers and g.order.id.startswith(begins)]
        orders = [self._given[key].order for key in gone]
        for key in gone:
            with contextlib.suppress(Exception):
                self._given.pop(key).future.cancel()
        return orders

    def recall(self, order: str) -> bool:
        """Expect nothing of an order any more; whether a worker had it, and its answer is not here yet."""
        for key, given in self._given.items():
            if given.order.id == order and not given.future.done():
                self._given.pop(key).future.cancel()
                return True
        return False

    def wake(self) -> None:
        """End a wait for what has ended."""
        self._done.put("")

    def at(self, worker: str) -> list[Order]:
        """The orders that the worker has."""
        return [given.order for given in self._given.values() if given.worker == worker]

    def _disconnect(self) -> None:
        self._given.clear()
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=2)

    def close(self) -> None:
        """Forget all orders, and end the workers of this process."""
        self.forget([given.worker for given in self._given.values()])
        self._disconnect()
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=5)
            self._cluster = None
        for one in self._own:
            _stations.pop(one.facts.id, None)
            one.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # The target of a search.

    def target(self, seconds: float, kind: str | None = None) -> Target:
        """The target of the workers that time kernels, as `targets`. Raises TschedError (E0875 to E0877)."""
        found = self.targets(seconds, kind)
        if len(found) > 1:
            raise TschedError(self.several(found))
        return found[0]

    def workers_now(self) -> list[Seen]:
        """The workers that are there now. Raises TschedError (E0875) if the scheduler is gone."""
        try:
            return self.workers()
        except Lost as e:
            raise TschedError(NO_SCHEDULER(None, address=self.address.text, why=str(e))) from None

    def targets(self, seconds: float, kind: str | None = None) -> list[Target]:
        """The targets of the workers that time kernels, of that kind if one is named; waits so many seconds for a first one.

        Raises TschedError (E0876), and E0875 if the scheduler is gone.
        """
        until = time.monotonic() + seconds
        while True:
            seen = self.workers_now()
            if found := self.served(seen, kind):
                return found
            if time.monotonic() >= until:
                raise TschedError(self.nobody(seen))
            time.sleep(POLL)

    def served(self, seen: Sequence[Seen], kind: str | None = None) -> list[Target]:
        """The targets for which some of the workers time kernels, of that kind if one is named."""
        fit = {s.facts.target for s in seen if s.facts.times and not s.unfit}
        return sorted(
            (t for t in fit if t.key.startswith(self.address.wanted) and kind in (None, t.kind)), key=lambda t: t.key
        )

    def several(self, found: Sequence[Target]) -> Diagnostic:
        """The finding that a search could be for each of these targets (E0877)."""
        kinds = ", ".join(f"`{t.key}`" for t in found)
        ways = ", ".join(f"`--on '{self.address.text}#{t.key}'`" for t in found)
        return SEVERAL(None, address=self.address.text, count=len(found), kinds=kinds, repair=ways)

    def nobody(self, seen: Sequence[Seen], target: Target | None = None) -> Diagnostic:
        """The finding that no worker times kernels for a search, of that target, with what is there instead (E0876)."""
        why = [f"{s.name}: {s.unfit or _does(s)}" for s in seen]
        there = "; ".join(why) if why else "there is none at all"
        how = "leave out the target behind the address"
        if not self.address.here:
            how = f"start one on a machine that fits, `tensorc-dsl worker {self.address.text}`"
        if target is not None:
            there = f"it is for `{target.key}`, and {there}"
        return NOBODY(None, address=self.address.text, there=there, repair=how)


def connect(
    address: str,
    *,
    token: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    target: Target | None = None,
) -> Pool:
    """The workers of the scheduler at an address as `tcp://127.0.0.1:8786`, to use with `with` and for `Task.search(on=…)`.

    `token` is the file of the token that the workers have, by default the user's. With `local:N` they are N of this process,
    for `target`, by default this machine with so many `threads`. Raises TschedError (E0870 to E0875).
    """
    where = Address.of(address)
    secret = read_token(None if token is None else Path(token))

    def station(_number: int) -> Station:
        return Station(target or host_target(threads), secret, machine=gethostname())

    return Pool(where, secret, station if where.here else None)


def _does(s: Seen) -> str:
    return f"it times kernels for `{s.facts.target.key}`" if s.facts.times else "it only builds"


POLL = 0.25
"""Seconds between looks at who is there, while there is nothing else to do."""
