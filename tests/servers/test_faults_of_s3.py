"""What goes wrong between us and an S3 server: told by the right error, with who was asked and for
what, and never with a credential; gone through where it passes, and given up in time where it does
not.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from stateshift.errors import AlreadyThere, StorageError, TransientStorageError
from stateshift.storage.protocol import CHUNK, Storage
from stateshift.storage.wrappers import Retrying
from tests.support import between as faults
from tests.support import s3
from tests.support.between import Asked, always, between, first
from tests.support.ground import Clock
from tests.support.s3 import at, pending
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow]

SMALL, LARGE = (
    b"0123456789" * 100,
    bytes(range(256)) * (5 * CHUNK // 256),
)  # one request, and more than one part
PLANTED = "planted-secret-Zm9vYmFy/+"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers,
        s3.exported(servers, s3.REAL),
    ):
        yield servers


@pytest.fixture
def endpoint(servers: Servers) -> str:
    """SeaweedFS: it looks at signatures."""
    return servers.exports()[s3.REAL]


@pytest.fixture
def place(endpoint: str) -> str:
    place = f"faults/{uuid.uuid4().hex}"
    straight = at(endpoint, place)
    straight.write("small", lambda: iter([SMALL]))
    straight.write("large", lambda: iter([LARGE]))
    return place


def patient(storage: Storage) -> tuple[Retrying, Clock]:
    clock = Clock()
    return Retrying(storage, clock, random.Random(1)), clock


READING: dict[str, Callable[[Storage], object]] = {
    "read": lambda s: s.read("small") == SMALL,
    "chunks": lambda s: b"".join(s.chunks("large")) == LARGE,
    "list": lambda s: sorted(info.path for info in s.list()) == ["large", "small"],
    "stat": lambda s: getattr(s.stat("large"), "size", None) == len(LARGE),
}
WRITING: dict[str, Callable[[Storage], object]] = {
    "write": lambda s: s.write("new", lambda: iter([SMALL])),
    "write in parts": lambda s: s.write("new", lambda: iter([LARGE])),
    "create": lambda s: s.create("new", SMALL),
    "move": lambda s: s.move("small", "new"),
    "remove": lambda s: s.remove("small"),
}


# -- storms


@pytest.mark.parametrize("does", {**READING, **WRITING}.values(), ids={**READING, **WRITING})
def test_a_storm_that_ends_is_gone_through(
    endpoint: str, place: str, does: Callable[[Storage], object]
) -> None:
    left = itertools.count()

    def storm(asked: Asked) -> str | None:
        return faults.SLOW_DOWN if next(left) < 5 else None

    with between(endpoint, storm) as (address, _):
        storage, clock = patient(at(address, place))
        assert does(storage) is not False
    assert len(clock.waits) == 5
    assert pending(endpoint, place) == []


@pytest.mark.parametrize("does", {**READING, **WRITING}.values(), ids={**READING, **WRITING})
def test_a_storm_that_does_not_end_is_given_up_after_eight_requests(
    endpoint: str, place: str, does: Callable[[Storage], object]
) -> None:
    """Nobody below us tries by himself: s3fs five times what botocore does five times would be
    200.
    """
    with between(endpoint, always(faults.SLOW_DOWN)) as (address, asked):
        storage, clock = patient(at(address, place))
        began = time.monotonic()
        with pytest.raises(StorageError, match="given up after 8 attempts") as raised:
            does(storage)
        assert time.monotonic() - began < 10
    assert not isinstance(raised.value, TransientStorageError)
    assert len(asked) == 8
    assert sum(clock.waits) < 26
    assert address.removeprefix("http://") in raised.value.fact
    assert f"s3://{s3.BUCKET}/{place}" in raised.value.fact
    # The answer to a HEAD has no words of its own.
    assert any(
        words in raised.value.fact for words in ("reduce your request rate", "Service Unavailable")
    )


def test_a_part_that_is_refused_leaves_no_others(endpoint: str, place: str) -> None:
    with between(endpoint, first(1, "PUT", faults.SLOW_DOWN, "partNumber=2")) as (address, _):
        with pytest.raises(TransientStorageError):
            at(address, place).write("new", lambda: iter([LARGE[:CHUNK]] * 9))
        assert pending(endpoint, place) == []
        assert at(endpoint, place).stat("new") is None
    with between(endpoint, first(1, "PUT", faults.SLOW_DOWN, "partNumber=2")) as (address, _):
        assert (
            patient(at(address, place))[0].write("new", lambda: iter([LARGE[:CHUNK]] * 9))
            == 9 * CHUNK
        )
    assert at(endpoint, place).read("new") == LARGE[:CHUNK] * 9
    assert pending(endpoint, place) == []


# -- cut and cut short


@pytest.mark.parametrize("does", [READING["read"], READING["chunks"]], ids=["read", "chunks"])
def test_a_connection_that_is_cut_in_a_body_may_pass_and_is_gone_on_with(
    endpoint: str, place: str, does: Callable[[Storage], object]
) -> None:
    with between(endpoint, first(1, "GET", faults.CUT)) as (address, _):
        with pytest.raises(TransientStorageError) as raised:
            does(at(address, place))
        assert address.removeprefix("http://") in raised.value.fact
    with between(endpoint, first(3, "GET", faults.CUT)) as (address, _):
        storage, clock = patient(at(address, place))
        assert does(storage)
        assert len(clock.waits) == 3


def test_a_body_that_ends_early_under_a_right_status_is_not_taken_for_the_file(
    endpoint: str, place: str
) -> None:
    with (
        between(endpoint, first(1, "GET", faults.SHORT)) as (address, _),
        pytest.raises(TransientStorageError),
    ):
        at(address, place).read("small")
    with between(endpoint, first(2, "GET", faults.SHORT)) as (address, _):
        assert patient(at(address, place))[0].read("small") == SMALL
    with between(endpoint, first(2, "GET", faults.SHORT)) as (address, _):
        assert b"".join(patient(at(address, place))[0].chunks("large", 7)) == LARGE[7:]


def test_what_drops_the_range_of_a_request_is_told(servers: Servers) -> None:
    """By moto, as the header is part of what is signed."""
    moto = servers.exports()[s3.MOTO]
    at(moto, "whole").write("large", lambda: iter([LARGE]))
    with (
        between(moto, always(faults.WHOLE)) as (address, _),
        pytest.raises(StorageError, match="asked for") as raised,
    ):
        list(at(address, "whole").chunks("large", CHUNK))
    assert not isinstance(raised.value, TransientStorageError)
    assert "Range" in (raised.value.hint or "")


def test_a_page_instead_of_an_answer_may_pass(endpoint: str, place: str) -> None:
    with (
        between(endpoint, first(1, "GET", faults.HTML)) as (address, _),
        pytest.raises(StorageError),
    ):
        list(at(address, place).list())
    with between(endpoint, first(3, "GET", faults.HTML)) as (address, _):
        assert [info.path for info in patient(at(address, place))[0].list()] == ["large", "small"]


def test_who_does_not_answer_is_not_waited_for_long(endpoint: str, place: str) -> None:
    with between(endpoint, always(faults.SILENT)) as (address, asked):
        began = time.monotonic()
        with pytest.raises(TransientStorageError):
            at(address, place, config_kwargs={"read_timeout": 0.5}).read("small")
        assert time.monotonic() - began < 3
        assert len(asked) == 1


# -- answers that are lost


def test_a_creation_whose_answer_is_lost_is_ours(endpoint: str, place: str) -> None:
    """Repeated below us, it would be told as somebody else's."""
    with between(endpoint, first(1, "PUT", faults.LOST)) as (address, asked):
        patient(at(address, place))[0].create("lock", b"ours")
        assert [method for method, _ in asked].count("PUT") == 2
    with (
        between(endpoint, first(1, "PUT", faults.SLOW_DOWN)) as (address, _),
        pytest.raises(AlreadyThere),
    ):
        patient(at(address, place))[0].create("lock", b"theirs")
    assert at(endpoint, place).read("lock") == b"ours"


@pytest.mark.parametrize(
    ("method", "holding"),
    [("PUT", ""), ("POST", "uploads"), ("PUT", "partNumber=1"), ("POST", "uploadId=")],
)
def test_a_write_whose_answer_is_lost_is_whole(
    endpoint: str, place: str, method: str, holding: str
) -> None:
    content = LARGE if holding else SMALL
    with between(endpoint, first(1, method, faults.LOST, holding)) as (address, _):
        assert patient(at(address, place))[0].write("new", lambda: iter([content])) == len(content)
    assert at(endpoint, place).read("new") == content


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_move_whose_answer_is_lost_has_happened_once(
    endpoint: str, place: str, method: str
) -> None:
    with between(endpoint, first(1, method, faults.LOST)) as (address, _):
        patient(at(address, place))[0].move("small", "new")
    straight = at(endpoint, place)
    assert sorted(info.path for info in straight.list()) == ["large", "new"]
    assert straight.read("new") == SMALL


def test_an_upload_that_fails_inside_a_right_status_is_not_taken_for_done(
    endpoint: str, place: str
) -> None:
    spoil = first(1, "POST", faults.INSIDE, "uploadId=")
    with between(endpoint, spoil) as (address, _), pytest.raises(TransientStorageError):
        at(address, place).write("new", lambda: iter([LARGE]))
    assert at(endpoint, place).stat("new") is None
    assert pending(endpoint, place) == []
    with between(endpoint, first(1, "POST", faults.INSIDE, "uploadId=")) as (address, _):
        patient(at(address, place))[0].write("new", lambda: iter([LARGE]))
    assert at(endpoint, place).read("new") == LARGE


# -- the wrong one


@pytest.mark.parametrize("key", ["stateshift", "somebody-else"])
def test_wrong_credentials_are_refused_at_once_and_never_told(
    endpoint: str, place: str, key: str
) -> None:
    with between(endpoint, lambda asked: None) as (address, _):
        storage, clock = patient(at(address, place, key=key, secret=PLANTED))
        for does in (*READING.values(), *WRITING.values()):
            with pytest.raises(StorageError) as raised:
                does(storage)
            told = f"{raised.value} {raised.value.fact} {raised.value.hint} {raised.value.location}"
            assert "credentials" in (raised.value.hint or "")
            assert address.removeprefix("http://") in told
            assert f"s3://{s3.BUCKET}/{place}" in told
            assert PLANTED not in told
            assert "X-Amz" not in told
    assert clock.waits == []
    assert sorted(info.path for info in at(endpoint, place).list()) == ["large", "small"]


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:9000"])
def test_a_wrong_host_or_port_is_told_with_its_name(host: str) -> None:
    storage, clock = patient(at(f"http://{host}", "orders", key="k", secret=PLANTED))
    for does in (*READING.values(), *WRITING.values()):
        with pytest.raises(StorageError, match="given up after 8 attempts") as raised:
            does(storage)
        assert host in raised.value.fact
        assert f"s3://{s3.BUCKET}/orders" in raised.value.fact
        assert PLANTED not in f"{raised.value} {raised.value.hint}"
        clock.waits.clear()
