"""`stateshift live buffer`: records of sources that cannot be replayed, kept for a job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import Command, choice, epilog
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.units import many, number, size
from stateshift.live.cli import argument, option

if TYPE_CHECKING:
    from stateshift.cli.views.text import Block
    from stateshift.live.buffer.queue import Ack
    from stateshift.live.buffer.runner import BufferSurvey

LISTEN_SCHEMES = ("tcp", "http")
SERVE_SCHEMES = ("http",)
ACKS: tuple[Ack, ...] = ("disk", "memory")
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class BufferOptions:
    """The bounds of a buffer, and what its producers are answered."""

    memory: Annotated[
        str, option("--memory SIZE", "Memory for records, at most. At least 1MiB.")
    ] = "64MiB"
    disk: Annotated[str, option("--disk SIZE", "Disk for records, at most. At least 16MiB.")] = (
        "10GiB"
    )
    keep: Annotated[
        float,
        option(
            "--keep SECONDS",
            "Keep what all readers have so long, where the disk's bound allows it.",
            min=0.0,
        ),
    ] = 3600.0
    ack: Annotated[
        str,
        option(
            "--ack WAY",
            "Answer producers when records are on disk, or when they are in memory: quicker, "
            "and kill -9 loses what is not written yet.",
        ),
    ] = "disk"


def buffer(
    terminal: Terminal,
    options: BufferOptions,
    directory: Annotated[str, argument("DIRECTORY", "On a disk of this machine.")],
    listen: Annotated[
        list[str] | None,
        option(
            "--listen URL",
            "Where producers come: tcp://HOST:PORT (a record a line; ?ack answers how many "
            "are durable) or http://HOST:PORT (POST a record, or POST /lines). Repeatable.",
        ),
    ] = None,
    serve: Annotated[str, option("--serve URL", "Where readers come.")] = "http://127.0.0.1:0",
    status: Annotated[bool, option("--status", "Show the buffer, whether it runs or not.")] = False,
    forget: Annotated[
        str | None, option("--forget READER", "Keep nothing more for this reader.")
    ] = None,
) -> int | None:
    """Keep records for a job whose source cannot be replayed.

    Runs until it is stopped. Records get numbers, and are kept until all readers have them. A job
    reads them by their numbers, as often as it needs: live.BufferSource is its source in Spark.
    Nothing is dropped: when a limit is reached, HTTP answers 503, and sockets are not read.
    """
    from stateshift.live.buffer import runner
    from stateshift.live.buffer.listeners import parse_address
    from stateshift.live.buffer.queue import Limits

    path = Path(directory)
    if forget is not None:
        _show(terminal, runner.forget(path, forget))
        return None
    if status:
        _show(terminal, runner.look(path))
        return None
    limits = Limits(
        memory=_bytes("--memory", options.memory),
        disk=_bytes("--disk", options.disk),
        keep_seconds=options.keep,
        ack=choice("--ack", options.ack, ACKS),
    )
    listens = [parse_address(url, LISTEN_SCHEMES, "--listen") for url in listen or ()]
    serves = parse_address(serve, SERVE_SCHEMES, "--serve")
    with runner.run_buffer(path, listens, serves, limits) as at_work:
        _show(terminal, runner.BufferSurvey(path, at_work.buffer.status(), at_work.running))
        try:
            # Show when producers begin to be refused, and when that ends; until somebody stops us.
            from stateshift.errors import StateshiftError

            never = threading.Event()
            before = at_work.buffer.status()
            was_refusing = False
            while not never.wait(LOOK_SECONDS) and not at_work.buffer.has_ended:
                now = at_work.buffer.status()
                is_refusing = now.refused > before.refused
                if is_refusing and not was_refusing:
                    terminal.say(f"producers are refused: {now.refusal}")
                if was_refusing and not is_refusing:
                    terminal.say("producers are accepted again, or have given up")
                before, was_refusing = now, is_refusing
            raise StateshiftError(
                "the thread that writes has ended", hint="run with -v, and report it"
            )
        except KeyboardInterrupt:
            terminal.say("stopping: producers are refused, what was accepted is written")
    terminal.say("stopped")
    return None


def _bytes(flag: str, text: str) -> int:
    from stateshift.errors import Complaint, SpecError
    from stateshift.specification.grammars import bytes_of

    try:
        return bytes_of(text)
    except ValueError as error:
        raise SpecError((Complaint(flag, str(error), text),), hint=f"{flag} 64MiB") from None


def _show(terminal: Terminal, seen: BufferSurvey) -> None:
    from stateshift.documents.live_state import LiveBufferDocument

    terminal.answer_value("live-buffer", LiveBufferDocument, seen, blocks_of(seen))


def blocks_of(seen: BufferSurvey) -> Iterator[Block]:
    """Show a buffer: where it listens, what it holds, and its readers."""
    from stateshift.cli.views.text import Cell, Gap, Line, TextTable, pairs
    from stateshift.documents.live_state import state_of

    def part(used: int, limit: int) -> str:
        return f"{size(used)} of {size(limit)}" if limit else size(used)

    status, running = seen.status, seen.running
    records = f"none; the next one is {number(status.next)}"
    if status.first != status.next:
        records = f"{number(status.first)} to {number(status.next - 1)}"
        if status.waiting:
            records += f", and {number(status.waiting)} not durable yet"
    refused = f"{many(status.refused, 'record')}: {status.refusal}"
    yield Line(f"buffer {seen.directory}: {state_of(seen)}", "strong")
    yield pairs(
        *(("producers", url) for url in (running.listens if running else ())),
        ("readers", running.serves) if running else None,
        ("records", records),
        ("memory", part(status.memory_bytes, status.memory_limit)) if running else None,
        ("disk", part(status.disk_bytes, status.disk_limit)),
        ("refused", Cell(refused, "warn")) if status.refused else None,
        ("failure", Cell(status.failure, "bad")) if status.failure else None,
    )
    if status.readers:
        yield Gap()
        rows = [
            (reader.name, number(reader.next), number(status.next - reader.next))
            for reader in status.readers
        ]
        yield TextTable(("reader", ">reads next", ">behind"), tuple(rows))


COMMANDS = {
    "buffer": Command(
        buffer,
        epilog(
            "stateshift live buffer /srv/orders --listen tcp://127.0.0.1:9000\n"
            "stateshift live buffer /srv/orders --listen http://127.0.0.1:8091 --disk 50GiB\n"
            "stateshift live buffer /srv/orders --status\n"
            "stateshift live buffer /srv/orders --forget old-job",
            *(2, 3, 4, 6),
            e0="stopped by Ctrl-C or SIGTERM, and all that was accepted is on disk; or shown",
            e4="another process runs it, it is no buffer, or a port is taken",
            e6="it does not answer; or at the end, accepted records could not be written",
        ),
    )
}
