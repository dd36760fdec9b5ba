"""`browse` at a terminal, driven by textual's pilot: each page of Spark's and Flink's images, of
damaged ones, of two, and of runs; it is bounded, can be stopped, obeys no name, and only reads.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import pty
import select
import shutil
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from stateshift import api
from stateshift.cli.browse.app import Browser, _beginning
from stateshift.cli.browse.page import ROWS, Page, PageRow, Reading
from stateshift.cli.browse.places import first_page
from stateshift.cli.views.text import Line, TextTable, plain_text
from stateshift.migration import Adapters, real_adapters
from stateshift.storage.protocol import Storage
from tests.cli.support import SOURCE, Outside, said, with_checkpoint
from tests.support.checkpoints import Checkpoint, put

pytestmark = pytest.mark.row("W-31")

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SPARK = GOLDEN / "spark-4.3.0" / "window-hdfs" / "checkpoint"
FLINK = GOLDEN / "flink-2.3.0" / "kinds-compressed"
NARROW, WIDE = (80, 24), (160, 50)
HOSTILE = "[red]a[/]\x1b[2J\r\n\u202eb\udcff"


class Seen:
    """The screen, and the keys."""

    def __init__(self, pilot: Pilot[Any]) -> None:
        self.pilot = pilot

    @property
    def text(self) -> str:
        strips = self.pilot.app.screen._compositor.render_strips()
        return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)

    async def until(self, *words: str) -> str:
        for _ in range(400):
            await self.pilot.pause(0.02)
            if all(word in self.text for word in words):
                return self.text
        raise AssertionError(f"{words} are not shown:\n{self.text}")

    async def press(self, keys: str, *words: str) -> str:
        await self.pilot.press(*keys.split())
        return await self.until(*words)

    async def choose(self, row: str, *words: str) -> str:
        """Go down to the row that begins so, and open it."""
        table = self.pilot.app.screen.query_one("#rows")
        names = [str(table.get_row_at(at)[0]) for at in range(table.row_count)]  # type: ignore[attr-defined]
        await self.pilot.press("ctrl+home", *["down"] * names.index(row))
        return await self.press("enter", *words)


def browse(
    act: Callable[[Seen], Awaitable[None]],
    *places: object,
    adapters: Adapters | None = None,
    size: tuple[int, int] = NARROW,
) -> None:
    given = adapters or real_adapters()
    opens = partial(first_page, [str(place) for place in places])

    async def run() -> None:
        app = Browser(opens, opens(given), given)
        async with app.run_test(size=size) as pilot:
            await act(Seen(pilot))
        assert app.return_value is None, "it ended by a bug of ours"

    asyncio.run(run())


def test_an_image_of_spark_is_read_down_to_an_entry_and_back() -> None:
    async def act(seen: Seen) -> None:
        first = await seen.until("6 parts", "Quit")
        for words in ("restart from  0-5", "needed        12 files", "3 shards, default 6.0 KiB"):
            assert words in first
        lines = first.splitlines()
        assert len(lines) == NARROW[1] and "Quit" in lines[-1]
        await seen.choose("operator", "hdfs-backed", "1 store")
        await seen.choose("default", "state/0/2/6.snapshot", "4 rows")
        await seen.choose("1", "shard 1", "3 entries", '{"window": {"start": 1767225980000000')
        entry = await seen.press("enter", "an entry", '"sum": null')
        assert '"end": 1767225990000000' in entry
        for words in ("3 entries", "4 rows", "1 store", "6 parts"):
            await seen.press("escape", words)
        await seen.press("escape", "6 parts")  # there is nothing behind it
        await seen.choose("files", "44 files", "needed", "metadata")
        await seen.press("escape", "6 parts")
        await seen.choose("sources and sinks", "source 0", "1 end")
        await seen.press("enter", "source 0: file")
        await seen.press("escape escape", "6 parts")
        await seen.choose("verify", "a job can restart from epoch 5")
        await seen.press("escape", "6 parts")
        await seen.choose("all of it", "Spark checkpoint", "Absolute paths inside")
        await seen.press("question_mark", "keys", "stop what is being read")
        await seen.press("escape escape", "6 parts")

    browse(act, SPARK)


def test_an_image_of_flink_shows_its_states_subtask_by_subtask() -> None:
    async def act(seen: Seen) -> None:
        await seen.until("canonical, metadata version 6", "17 parts")
        await seen.press("down down down down down enter", "operator sessions", "4 stores")
        await seen.press("enter", "2 rows")
        await seen.choose("all", '["key-0", 0]', '["key-5", -21474836555]', "6 entries")
        await seen.press("escape", "2 rows")
        text = await seen.choose("0", "shard 0", "2 entries")
        assert "key-5" not in text
        await seen.press("slash k e y minus 1 enter", "1 of 2 entries read with 'key-1'")
        await seen.press("escape", "key-0", "2 entries")

    browse(act, FLINK)


def test_two_images_are_compared_when_it_is_asked_for() -> None:
    other = SPARK.parents[1] / "window-hdfs-v1" / "checkpoint"

    async def act(seen: Seen) -> None:
        await seen.until("A     Spark checkpoint at", "3 parts")
        await seen.choose("diff", "different:", "epoch 5 and epoch 3", "1 store")
        await seen.press("enter", "removed", "20 differences")
        await seen.press("enter", "an entry that only A has", "in A")
        await seen.press("escape escape escape", "3 parts")
        await seen.choose("B", "restart from  0-3")

    browse(act, SPARK, other)


def test_runs_are_listed_newest_first_and_open_with_their_timeline(tmp_path: Path) -> None:
    names = {"20260101-a": "spark-finished", "20260102-b": "spark-failed-in-confirm"}
    for name, golden in names.items():
        shutil.copytree(GOLDEN / "runs" / golden / "workdir", tmp_path / name)
    (tmp_path / "20260103-c").mkdir()
    (tmp_path / "20260103-c" / "journal").write_bytes(b"no journal\n{}\n")

    async def act(seen: Seen) -> None:
        text = await seen.until("3 runs", "damaged", "failed", "finished")
        assert text.index("20260103-c") < text.index("20260102-b") < text.index("20260101-a")
        await seen.choose("20260101-a", "timeline", "█", "take back")
        await seen.press("escape", "3 runs")
        await seen.choose("20260103-c", "error:", "it cannot be shown")

    browse(act, tmp_path)
    run = tmp_path / "20260102-b"
    browse(lambda seen: seen.press("r", "failed", "stateshift resume"), run, size=WIDE)


def test_damage_is_shown_and_the_rest_can_be_read() -> None:
    outside = with_checkpoint(Checkpoint(batches=3))
    outside.disk.open(SOURCE).remove("state/0/1/2.delta")

    async def act(seen: Seen) -> None:
        await seen.until("1 refuse", "restart from  0\n")
        await seen.choose("findings", "refuse:", "2.delta")
        await seen.press("escape", "1 refuse")
        await seen.choose("operator", "1 store")
        await seen.press("enter", "3 rows")
        text = await seen.choose("all", "error: the state is not whole", "ended with an error")
        assert "hint: stateshift verify" in text
        assert "key" in text.split("verify")[1], "the heads stay"
        await seen.press("escape escape escape", "1 refuse")

    browse(act, SOURCE, adapters=outside.adapters)
    nothing = said("browse", "hdfs://here:8020/nothing", adapters=outside.adapters)
    assert nothing.code == 2, "it is no terminal"


def test_a_large_store_is_shown_screen_by_screen_and_searched_to_its_end() -> None:
    outside = with_checkpoint(Checkpoint(batches=1, shards=2, keys=600))

    async def act(seen: Seen) -> None:
        await seen.choose("operator", "1 store")
        await seen.press("enter", "3 rows")
        await seen.choose("all", "entries 1 to 500; there are more")
        await seen.press("m", "entries 501 to 1,000; there are more")
        text = await seen.press("m", "entries 1,001 to 1,200")
        assert "there are more" not in text
        await seen.press("m", "entries 1,001 to 1,200")
        sought = b"1-0599".hex()
        await seen.press(f"slash {' '.join(sought)} enter", "1 of 1,200 entries read with")
        await seen.press("escape", "entries 1 to 500; there are more")

    browse(act, SOURCE, adapters=outside.adapters)


def test_long_texts_are_shown_up_to_a_bound_and_say_so() -> None:
    table = TextTable(("n",), tuple((str(number),) for number in range(3000)))
    page = Page("long", (table, *(Line(f"line {number}") for number in range(2000))))
    text = plain_text(_beginning(page.facts))
    assert "… the first 1,000 of 3,000" in text and "… the first 1,000 of 2,002" in text
    assert len(text.splitlines()) < 2100


def endless(read: list[int]) -> Iterator[PageRow]:
    for number in itertools.count():
        read.append(number)
        yield PageRow((f"row {number}",))


def test_of_endless_rows_those_on_the_screen_are_read_and_one_more() -> None:
    read: list[int] = []
    reading = Reading(endless(read))
    for turn in (1, 2, 3):
        rows = [row for part in reading.window() for row in part.rows]
        assert len(rows) == ROWS and reading.more
        assert rows[0].cells == (f"row {(turn - 1) * ROWS}",)
        assert len(read) == turn * ROWS + 1


def test_a_search_without_an_end_tells_how_far_it_is_and_is_stopped() -> None:
    def rows(adapters: Adapters, needle: str) -> Iterator[PageRow]:
        return chain((PageRow((f"found {number}",)) for number in range(9)), endless([]))

    def page(adapters: Adapters) -> Page:
        return Page("endless", (), ("row",), rows)

    async def act(seen: Seen) -> None:
        await seen.until("rows 1 to 500")
        await seen.press("slash n o n e enter", "0 of ", "rows read with 'none'; reading")
        await seen.press("escape", "; stopped")
        await seen.press("slash f o u n d enter", "found 0", "found 8", "reading")
        await seen.press("escape", "; stopped")
        await seen.press("escape", "rows 1 to 500")

    async def run() -> None:
        app = Browser(page, page(real_adapters()), real_adapters())
        async with app.run_test(size=NARROW) as pilot:
            await act(Seen(pilot))

    asyncio.run(run())


def test_a_read_that_hangs_neither_holds_the_page_nor_the_program() -> None:
    outside = with_checkpoint()
    hangs = threading.Event()

    class Hanging:
        def __init__(self, storage: Storage) -> None:
            self._storage = storage

        def __getattr__(self, name: str) -> Any:
            if name == "list" and hangs.is_set():
                threading.Event().wait(60)
            return getattr(self._storage, name)

    given = outside.adapters
    slow = replace(given, open_storage=lambda at: Hanging(given.open_storage(at)))  # type: ignore[arg-type,return-value]

    async def act(seen: Seen) -> None:
        await seen.until("parts")
        hangs.set()
        await seen.choose("verify", "reading")
        await seen.press("escape", "parts")
        await seen.press("q")

    begun = time.monotonic()
    browse(act, SOURCE, adapters=slow)
    assert time.monotonic() - begun < 30


def test_names_are_text_whatever_they_hold_and_secrets_stay_hidden() -> None:
    outside = Outside()
    place = "hdfs://me:geheim@here:8020/ck/orders"
    disk = outside.disk.open(place)
    Checkpoint().write(disk)
    put(disk, f"offsets/{HOSTILE}", b"x")
    put(disk, f"state/0/0/{HOSTILE * 40}", b"x")

    async def act(seen: Seen) -> None:
        text = await seen.until("parts")
        assert "geheim" not in text
        text = await seen.choose("files", "files", "[red]a[/]\\x1b[2J\\r\\n\\u202eb")
        assert not {"\x1b", "\r", "\u202e", "\udcff"} & set(text)
        assert all(len(line) <= NARROW[0] for line in text.splitlines())
        await seen.press("slash left_square_bracket r e d enter", "2 of ")

    browse(act, place, adapters=outside.adapters)


def test_nothing_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = shutil.copytree(SPARK, tmp_path / "orders")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    before = [(path, path.stat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))]

    async def act(seen: Seen) -> None:
        await seen.until("6 parts")
        for part in ("operator", "files", "verify"):
            await seen.choose(part, "")
            await seen.press("ctrl+p ctrl+s escape", "6 parts")

    browse(act, image)
    assert [(path, path.stat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))] == before


def test_a_second_click_opens_a_row_and_the_keys_below_can_be_clicked() -> None:
    async def act(seen: Seen) -> None:
        lines = (await seen.until("6 parts")).splitlines()
        row = next(at for at, line in enumerate(lines) if line.startswith(" files  "))
        await seen.pilot.click(offset=(4, row))
        await seen.pilot.click(offset=(4, row))
        await seen.until("44 files", "path")
        await seen.pilot.click(offset=(4, NARROW[1] - 1))  # Esc
        await seen.until("6 parts")

    browse(act, SPARK)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_without_a_terminal_it_is_refused(flags: tuple[str, ...]) -> None:
    refused = said("browse", "/ck/or ders", *flags)
    assert refused.code == 2
    hint = " ".join(("stateshift inspect '/ck/or ders'", *flags))
    assert hint in (refused.document["hint"] if flags else refused.err)


def test_without_its_library_the_extra_is_named() -> None:
    code, told = typed("import sys; sys.modules['textual'] = None\n", "", wait_for="error")
    assert code == 4
    assert "browsing needs the library textual" in told
    assert "pip install 'stateshift[browse]'" in told


def typed(before: str, keys: str, wait_for: str) -> tuple[int, str]:
    """Run the program at a terminal of its own; return its exit code and what it wrote."""
    program = f"{before}from stateshift.cli import main\nraise SystemExit(main())"
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-c", program, "browse", str(SPARK)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    told, ends, sent = b"", time.monotonic() + 60, False
    while time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            told += os.read(terminal, 65_536) if ready else b""
        except OSError:  # it has ended
            break
        if not sent and wait_for.encode() in told:
            os.write(terminal, keys.encode())
            sent = True
    else:
        os.kill(child, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told.decode(errors="replace")


@pytest.mark.parametrize("keys", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_at_a_real_terminal_it_starts_quits_and_leaves_it_as_it_was(keys: str) -> None:
    code, told = typed("", keys, wait_for="restart from")
    assert code == 0
    assert "\x1b[?1049h" in told and told.rindex("\x1b[?1049l") > told.rindex("\x1b[?1049h")
    assert "restart from" in told


def test_the_shards_of_an_export_can_be_chosen() -> None:
    for place in (SPARK, FLINK):
        whole = api.export(place)
        stores = whole.stores
        assert stores
        lines = b"".join(whole.lines()).splitlines()
        parts = [b"".join(api.export(place, shard=n).lines()).splitlines() for n in range(4)]
        assert sorted(itertools.chain.from_iterable(parts)) == sorted(lines)
        assert sum(bool(part) for part in parts) > 1
