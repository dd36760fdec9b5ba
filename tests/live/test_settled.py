"""Changes that nobody can alter any more are read in one; a job that insists on signatures reads
each of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import signing
from stateshift.live.folder import ChainWorker, Folder
from stateshift.live.member import Group, Member, TaskPlace
from stateshift.live.protocol.chains import Decision, Link, NewChain, ProposedChange, encode
from stateshift.storage.opening import open_storage

HERE = TaskPlace(ChainWorker("score", "q", 0), 1)


def folder_of(tmp_path: Path) -> Folder:
    folder = Folder(open_storage(str(tmp_path / "group")))
    folder.ensure()
    return folder


def change(folder: Folder, number: int) -> ProposedChange:
    new = NewChain((Link("first:0", "one"),))
    return ProposedChange(folder.check(), number, "replace", {"score": new}, 0.0, 60.0)


def member_of(folder: Folder, key: str | None = None) -> Member:
    code_place = open_storage(f"{folder.location}/code")
    return Member(folder, code_place, Group("", key))


def applied(folder: Folder, number: int, signature: bytes | None = None) -> None:
    folder.propose(change(folder, number), signature)
    folder.decide(number, Decision("applied", 1.0, "me"))


def test_a_worker_reads_settled_changes_in_one_and_the_rest_one_by_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for number in (1, 2, 3):
        applied(folder, number)
    folder.settle(list(folder.changes())[:2])
    folder.storage.remove("changes/000001/proposed.json")
    member = member_of(folder)
    member.look(HERE, at_once=True)
    assert member.known == 3
    assert [known.number for known in folder.changes()] == [1, 2, 3]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A private key's file, and the text of its public key."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = tmp_path_factory.mktemp("keys") / "live.key"
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private.write_bytes(pem)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return str(private), public.decode()


def test_a_job_that_insists_ignores_what_was_decided_without_a_signature(
    tmp_path: Path, keys: tuple[str, str]
) -> None:
    private, public = keys
    folder = folder_of(tmp_path)
    applied(folder, 1, signing.private_key(private).sign(encode(change(folder, 1))))
    applied(folder, 2)
    folder.settle(list(folder.changes()))
    member = member_of(folder, public)
    member.look(HERE, at_once=True)
    assert member.known == 1


def test_a_signed_change_holds_at_its_own_place_alone(
    tmp_path: Path, keys: tuple[str, str]
) -> None:
    private, public = keys
    folder = folder_of(tmp_path)
    signature = signing.private_key(private).sign(encode(change(folder, 1)))
    applied(folder, 1, signature)
    # The same bytes and the same signature, put at the next place.
    for file in list(folder.storage.list("changes/000001")):
        content = folder.storage.read(file.path)
        folder.storage.create(file.path.replace("000001", "000002"), content)
    member = member_of(folder, public)
    member.look(HERE, at_once=True)
    assert member.known == 1
    assert "another place" in str(member.log.changes[1].decided)


def test_a_change_of_another_group_is_not_taken(tmp_path: Path, keys: tuple[str, str]) -> None:
    private, public = keys
    folder = folder_of(tmp_path)
    foreign = replace(change(folder, 1), group="another")
    folder.propose(foreign, signing.private_key(private).sign(encode(foreign)))
    folder.decide(1, Decision("applied", 1.0, "somebody"))
    member = member_of(folder, public)
    member.look(HERE, at_once=True)
    assert member.known == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"changes": [{}]}'])
def test_settled_changes_that_cannot_be_read_are_read_one_by_one(
    tmp_path: Path, content: bytes
) -> None:
    folder = folder_of(tmp_path)
    applied(folder, 1)
    folder.storage.create("changes/settled.json", content)
    member = member_of(folder)
    member.look(HERE, at_once=True)
    assert member.known == 1
    assert [known.number for known in folder.changes()] == [1]
