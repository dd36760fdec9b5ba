"""A job that insists on signatures runs nothing that the holder of the key has not signed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift import live, signing
from stateshift.errors import FormatError, Incompatible, SpecError
from stateshift.live.member import Group, check_signed
from stateshift.live.protocol.chains import Decision
from tests.live.ground import Ground, asked, change, giving, numbers, propose, run

pytest.importorskip("cryptography")

APPLIED = Decision("applied", 1.0, "somebody")
PROPOSED = "changes/000001/proposed.json"


@dataclass(frozen=True)
class Keys:
    """The file of a private key, and its public key as text."""

    private: str
    public: str


def make_keys(directory: Path, kind: str = "ed25519") -> Keys:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key: Any = ec.generate_private_key(ec.SECP256R1())
    if kind == "ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
    file = directory / "live.key"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Keys(str(file), public.decode())


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path)


def trusting(keys: Keys) -> Group:
    return Group("", keys.public, ("us",))


def words(ground: Ground) -> list[tuple[str, str]]:
    return [(said.word, said.reason) for said in ground.folder.said(1)]


def test_a_signed_change_runs(keys: Keys) -> None:
    ground = Ground()
    chain, member = ground.chain(), ground.member(trusting(keys))
    batches = iter(range(100))
    run(chain, member, next(batches))
    what = asked({"score": giving(1)}, key=keys.private)
    carried = change(ground.folder, what, lambda: run(chain, member, next(batches)))
    assert carried.state == "finished"
    assert numbers(run(chain, ground.member(trusting(keys)), next(batches))) == [1, 1]


@pytest.mark.parametrize("signed_by", ["nobody", "another"])
def test_an_unsigned_change_is_refused(keys: Keys, tmp_path: Path, signed_by: str) -> None:
    (tmp_path / "other").mkdir()
    other = make_keys(tmp_path / "other")
    key = {"nobody": None, "another": other.private}[signed_by]
    ground = Ground()
    chain, member = ground.chain(), ground.member(trusting(keys))
    propose(ground.folder, asked({"score": giving(1)}, key=key))
    assert numbers(run(chain, member, 0)) == [0, 0]
    ((word, reason),) = words(ground)
    assert (word, "signed" in reason) == ("refused", True)
    ground.folder.decide(1, APPLIED)
    for again in (member, ground.member(trusting(keys))):
        assert numbers(run(chain, again, 1)) == [0, 0]


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_proposal_that_was_changed_after_it_was_signed_does_not_run(
    keys: Keys, is_decided: bool
) -> None:
    ground = Ground()
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}, key=keys.private))
    propose_instead = asked({"score": giving(666)})
    (package,) = propose_instead.packages
    ground.folder.write_code(package.digest, package.content)
    proposal = json.loads(ground.text(PROPOSED))
    proposal["chains"]["score"]["links"][0]["code"] = package.digest
    ground.text(PROPOSED, json.dumps(proposal).encode())
    if is_decided:
        ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, ground.member(trusting(keys)), 0)) == [0, 0]


def test_who_has_checked_a_proposal_runs_what_was_checked(keys: Keys) -> None:
    ground = Ground()
    chain, member = ground.chain(), ground.member(trusting(keys))
    propose(ground.folder, asked({"score": giving(1)}, key=keys.private))
    run(chain, member, 0)
    ground.text(PROPOSED, ground.text(PROPOSED).replace(b'"replace"', b'"remove"'))
    ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, member, 1)) == [1, 1]


def test_a_batch_that_others_began_with_an_unsigned_change_is_not_run(keys: Keys) -> None:
    ground = Ground()
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}))
    ground.folder.decide(1, APPLIED)
    run(chain, ground.member(), 0)
    with pytest.raises(FormatError, match="which is not applied here"):
        run(chain, ground.member(trusting(keys)), 0)


def test_a_storage_that_does_not_answer_makes_no_change_an_unsigned_one(keys: Keys) -> None:
    ground = Ground()
    chain, member = ground.chain(), ground.member(trusting(keys))
    run(chain, member, 0)
    propose(ground.folder, asked({"score": giving(1)}, key=keys.private))
    ground.folder.decide(1, APPLIED)
    (signature,) = [path for path in ground.disk.snapshot() if "signature-" in path]
    place = signature.removeprefix(f"{ground.folder.location}/")
    whole = ground.text(place)
    ground.text(place, whole + b"x" * (1 << 20))  # more than may be read
    with pytest.raises(Exception, match="more than"):
        run(chain, member, 1)
    ground.text(place, whole)
    assert numbers(run(chain, member, 1)) == [1, 1]


@pytest.mark.parametrize(
    "key", ["/no/such/file", "-----BEGIN PUBLIC KEY-----\ngarbage\n-----END PUBLIC KEY-----", "ec"]
)
def test_a_key_that_is_none_is_refused_where_the_job_is_started(key: str, tmp_path: Path) -> None:
    if key == "ec":
        key = make_keys(tmp_path, "ec").public
    with pytest.raises(SpecError) as refused:
        live.group(str(tmp_path / "group"), key)
    assert refused.value.hint


@pytest.mark.parametrize("content", [None, b"", b"garbage", "ec"])
def test_a_private_key_that_is_none_is_refused(content: bytes | str | None, tmp_path: Path) -> None:
    file = tmp_path / "live.key"
    if content == "ec":
        make_keys(tmp_path, "ec")
    elif isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(SpecError, match="no private key") as refused:
        signing.private_key(str(file))
    assert "openssl genpkey" in str(refused.value.hint)


def test_a_signature_that_ends_anywhere_is_none(keys: Keys) -> None:
    signature = signing.private_key(keys.private).sign(b"change")
    check_signed(b"change", signature, keys.public)
    for end in range(len(signature)):
        with pytest.raises(Incompatible):
            check_signed(b"change", signature[:end], keys.public)
