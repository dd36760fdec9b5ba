"""The lock on a target."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from stateshift import lock
from stateshift.errors import JournalError, StateshiftError
from stateshift.formats.marks import LOCK_SUFFIX
from stateshift.storage.opening import open_patiently
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import put

PATH = f"orders{LOCK_SUFFIX}"


def test_the_lock_says_whose_it_is_and_is_gone_when_it_is_released() -> None:
    parent = MemoryDisk().open("file:///t")
    lock.take(parent, "orders", "r1", "/w/r1", "host")
    assert json.loads(parent.read(PATH)) == {"run": "r1", "workdir": "/w/r1", "host": "host"}
    lock.release(parent, "orders", "r1")
    assert list(parent.list()) == []


def test_a_run_takes_its_own_lock_again_after_it_was_killed() -> None:
    parent = MemoryDisk().open("file:///t")
    lock.take(parent, "orders", "r1", "/w/r1", "host")
    lock.take(parent, "orders", "r1", "/w/r1", "host")


def test_another_run_is_refused_and_told_how_to_take_it_over() -> None:
    parent = MemoryDisk().open("file:///t")
    lock.take(parent, "orders", "r1", "/w/my run", "host")
    with pytest.raises(
        JournalError, match=r"held by run r1 \(workdir /w/my run on host\)"
    ) as caught:
        lock.take(parent, "orders", "r2", "/w/r2", "host")
    assert "stateshift resume '/w/my run'" in (caught.value.hint or "")
    assert f"remove file:///t/{PATH}" in (caught.value.hint or "")


def test_a_source_that_a_run_still_brings_has_a_way_out_although_that_run_never_ends() -> None:
    """A standby has no end, so `resume` is none; and its workdir may be lost with its machine."""
    parent = MemoryDisk().open("file:///t")
    lock.take(parent, "orders", "r1", "/w/my run", "host")
    lock.refuse_source(parent, "orders", "r1")
    with pytest.raises(JournalError, match="is the target of run r1") as caught:
        lock.refuse_source(parent, "orders", "r2")
    hint = caught.value.hint or ""
    for way in ("status '/w/my run'", "rollback '/w/my run'", "failover file:///t/orders"):
        assert f"stateshift {way}" in hint
    assert hint.endswith(f"remove file:///t/{PATH}")


def test_only_its_owner_releases_it() -> None:
    parent = MemoryDisk().open("file:///t")
    lock.take(parent, "orders", "r1", "/w/r1", "host")
    lock.release(parent, "orders", "r2")
    assert parent.stat(PATH) is not None


@pytest.mark.parametrize("content", [b"", b"x", b"[]", b'{"run": ', b'{"workdir": 5}'])
def test_a_lock_that_cannot_be_read_still_locks_and_suggests_no_command_that_cannot_work(
    content: bytes,
) -> None:
    parent = MemoryDisk().open("file:///t")
    put(parent, PATH, content)
    with pytest.raises(JournalError, match="does not say by whom") as caught:
        lock.take(parent, "orders", "r1", "/w", "host")
    assert "stateshift" not in (caught.value.hint or "").replace(LOCK_SUFFIX, "")
    with pytest.raises(JournalError, match="does not say by whom"):
        lock.refuse_source(parent, "orders", "r1")
    lock.release(parent, "orders", "r1")
    assert parent.stat(PATH) is not None


def test_a_page_in_a_lock_s_place_is_told_by_its_beginning() -> None:
    parent = MemoryDisk().open("s3://t")
    put(parent, PATH, b"<html><title>Sign in to the proxy</title>" + b"x" * 500)
    with pytest.raises(
        JournalError, match="by whom; it begins '<html><title>Sign in to the proxy"
    ) as caught:
        lock.refuse_held(parent, "orders")
    assert len(caught.value.fact) < 200


def test_of_many_that_try_at_once_one_gets_it() -> None:
    parent, got = MemoryDisk().open("file:///t"), list[int]()

    def attempt(number: int) -> None:
        try:
            lock.take(parent, "orders", f"r{number}", "/w", "host")
            got.append(number)
        except JournalError:
            pass

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


@pytest.mark.parametrize("leads_to", ["nothing", f"orders{LOCK_SUFFIX}"])
def test_a_lock_that_is_a_link_to_nothing_is_refused_with_a_way_out(
    tmp_path: Path, leads_to: str
) -> None:
    (tmp_path / PATH).symlink_to(leads_to)
    with pytest.raises(StateshiftError, match=re.escape(PATH)) as caught:
        lock.take(open_patiently(f"file://{tmp_path}"), "orders", "r1", "/w/r1", "host")
    assert caught.value.exit_code in (6, 8)
    assert (tmp_path / PATH).is_symlink()
