"""A carrier gets one order to one executor and its answer back, or says that it was Lost. Asking
sends orders out by a carrier, as many at once as there are slots, and again when lost.

A lost executor costs its order and nothing else: that is repeated, which is always safe, up to
ATTEMPTS_MAX times in all, since one that kills its executor would never end. Rates are shared out
evenly over the slots: together executors never exceed them.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from stateshift.errors import ClusterError
from stateshift.fleet.orders import AskAll, Json, Order, decode_answer, encode_order
from stateshift.step import Step
from stateshift.world import Meter, World

ATTEMPTS_MAX = 4
THREADS_MAX = 256

# An order, and its label.
LabelledOrder = tuple[str, Order]

_log = logging.getLogger(__name__)


class Lost(Exception):
    """An executor went away with an order; nobody knows the rest."""


class Carrier(Protocol):
    """Carries orders to the executors of a cluster, and their answers back."""

    @property
    def master(self) -> str: ...

    @property
    def far(self) -> bool:
        """Whether executors are on machines of their own, as far as the master's name tells."""
        ...

    @property
    def description(self) -> str:
        """The carrier, in a few words."""
        ...

    def slots(self, waiting: int) -> int:
        """Return the number of orders that can be at work, or be handed over while some wait."""
        ...

    def carry(self, order: str, label: str) -> str:
        """Carry an order and return the answer.

        Raises:
            Lost: an executor went away.
            Interrupted: somebody asked to stop.
            ClusterError: nothing can be carried any more.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """The names of a crew. A person who has chosen it (`is_chosen`) is told of its use."""

    name: str = "fleet"
    is_chosen: bool = True
    worker: str = "executor"
    too_little: str = (
        "the executors' own logs say why; where it is memory, give them more "
        "(spark.executor.memoryOverhead) or fewer cores, then: stateshift resume WORKDIR"
    )


OF_SPARK = Ways()
OF_THIS_MACHINE = Ways(
    name="processes",
    is_chosen=False,
    worker="process",
    too_little=(
        "where it was memory, give it less to do at once: --parallel 1 starts no processes; then: "
        "stateshift resume WORKDIR"
    ),
)


def add_attempt(text: str, attempt: int) -> str:
    """Return an answer with the number of times that the order had been begun before."""
    return json.dumps({**json.loads(text), "attempt": attempt})


class Asking:
    """The orders of one session, sent out by a carrier."""

    def __init__(self, carrier: Carrier, meter: Meter, ways: Ways) -> None:
        self._carrier, self._meter, self._ways = carrier, meter, ways
        self._session = uuid.uuid4().hex

    def one(self, ask: str, label: str, world: World | None, **more: object) -> tuple[Json, bool]:
        """Return the answer, and whether an attempt before may have done some of it."""
        reason, ways = "", self._ways
        if world is not None:
            world.check_interrupted()
        for attempt in range(ATTEMPTS_MAX):
            order = self._order(ask, f"{label}/{attempt}", world, **more)
            try:
                done, again = decode_answer(self._carrier.carry(order, label))
                return done, again or attempt > 0
            except Lost as lost:
                reason = str(lost)
            message = "%s: attempt %d of %d was lost with its %s: %s"
            _log.warning(message, label, attempt + 1, ATTEMPTS_MAX, ways.worker, reason)
            if world is not None:
                world.check_interrupted()
            if attempt + 1 < ATTEMPTS_MAX:
                self._meter.say(
                    f"{ways.name}: {label} was lost with its {ways.worker}, and is repeated "
                    f"({reason})"
                )
        fact = f"{label} was lost with its {ways.worker} {ATTEMPTS_MAX} times: {reason}"
        raise ClusterError(fact, cluster=self._carrier.master, hint=ways.too_little)

    def all(
        self, ask: str, orders: Sequence[LabelledOrder], world: World
    ) -> list[tuple[Json, bool]]:
        """Return the answers to orders that a step is carried out by, as `one` does."""

        def asked(labelled: LabelledOrder) -> tuple[Json, bool]:
            label, order = labelled
            return self.one(ask, label, world, **order)

        at_once = min(THREADS_MAX, len(orders), max(1, self._carrier.slots(len(orders))))
        with ThreadPoolExecutor(at_once) as threads:
            try:
                return list(threads.map(asked, orders))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def all_of(self, step: Step, world: World) -> AskAll:
        """Return the function that sends out the orders of a step."""

        def ask_all(ask: str, orders: Sequence[Order]) -> list[tuple[Json, bool]]:
            labelled = []
            for number, order in enumerate(orders):
                labelled.append((f"{step.name}/{ask}/{number}", order))
            return self.all(ask, labelled, world)

        return ask_all

    def spread(self, ask: str, orders: Iterable[Order]) -> Iterator[Json]:
        """Yield answers in the order of orders, as many ahead as keep the fleet at work."""
        ahead = 2 * min(THREADS_MAX, max(1, self._carrier.slots(THREADS_MAX)))
        waiting: deque[Future[tuple[Json, bool]]] = deque()
        with ThreadPoolExecutor(ahead) as threads:
            try:
                for number, order in enumerate(orders):
                    waiting.append(threads.submit(self.one, ask, f"{ask}/{number}", None, **order))
                    if len(waiting) >= ahead:
                        yield waiting.popleft().result()[0]
                while waiting:
                    yield waiting.popleft().result()[0]
            except GeneratorExit:  # nobody wants more: what is at work is waited for
                threads.shutdown(wait=False, cancel_futures=True)
                raise
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self._carrier.close()  # what is at work ends, and nobody waits for it
                raise

    def _order(self, ask: str, attempt: str, world: World | None, **more: object) -> str:
        token, share = f"{self._session}/{attempt}", max(1, self._carrier.slots(0))
        if world is None:
            return encode_order(ask, "", token, None, share, **more)
        # A power cut of another machine would go unseen here: there files are synced as ever.
        unsynced = [] if self._carrier.far else sorted(world.unsynced)
        places = {"unsynced": unsynced, "claims": dict(world.claims)}
        return encode_order(ask, world.run, token, world.pace, share, **places, **more)
