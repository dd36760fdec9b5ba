"""Changed letters in `_metadata` that still make text: Flink has no such class, and so cannot read
the file.

Seen with Flink 2.3.0, which answered each with ClassNotFoundException, and a max parallelism above
32,768 with "Setting max parallelism is not in valid bounds".
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.formats.flink.metadata import decode_metadata, encode_metadata
from stateshift.formats.flink.serializers import misspelt
from tests.damage import images
from tests.damage.commands import document_of, run

NAME = "flink-2.3.0/count-canonical-hashmap"


def refusals(content: bytes) -> list[str]:
    golden = images.image(NAME)
    files = {**golden.files, f"{golden.location}/_metadata": content}
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    found = [one["message"] for one in document_of(shown)["findings"] if one["level"] == "refuse"]
    assert shown.code == (5 if found else 0)
    return found


def whole() -> bytes:
    golden = images.image(NAME)
    return golden.files[f"{golden.location}/_metadata"]


@pytest.mark.row("W-2")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"checkpoint.CheckpointProperties", b"checkpoint.ChecktointProperties"),
        (b"core.execution.SavepointFormatType", b"core.execution.SavepointFormatTypf"),
        (b"SavepointType$PostCheckpointAction", b"SavepointType$PostCheckpointActioo"),
        (b"CANONICAL", b"CANONICAM"),
    ],
)
def test_a_class_or_a_constant_that_flink_does_not_have_is_refused(old: bytes, new: bytes) -> None:
    assert whole().count(old) >= 1
    (refused,) = refusals(whole().replace(old, new))
    assert new.decode().rpartition(".")[2] in refused


@pytest.mark.row("W-2")
@pytest.mark.parametrize("name", ["CheckpointProperties", "SavepointType"])
def test_a_class_with_another_serial_version_is_refused(name: str) -> None:
    """Java: InvalidClassException, local class incompatible."""
    class_ = f"org.apache.flink.runtime.checkpoint.{name}".encode()
    assert class_ in whole()
    before, _, behind = whole().partition(class_)
    (refused,) = refusals(before + class_ + bytes((behind[0] ^ 16,)) + behind[1:])
    assert f"{name}, serialVersionUID" in refused


@pytest.mark.row("W-2")
@pytest.mark.parametrize(
    "name",
    ["core.execution.SavepointFormatType", "runtime.checkpoint.SavepointType$PostCheckpointAction"],
)
def test_an_enum_with_a_serial_version_is_refused(name: str) -> None:
    before, between, behind = whole().partition(f"org.apache.flink.{name}".encode())
    (refused,) = refusals(before + between + bytes((behind[0] ^ 16,)) + behind[1:])
    assert "has a serialVersionUID" in refused


def test_a_max_parallelism_that_flink_does_not_take_is_refused() -> None:
    metadata = decode_metadata(whole())
    operators = [
        replace(one, max_parallelism=1 << 20) if not one.subtasks else one
        for one in metadata.operators
    ]
    larger = replace(metadata, operators=tuple(operators))
    if larger == metadata:
        first, *rest = metadata.operators
        larger = replace(metadata, operators=(replace(first, max_parallelism=1 << 20), *rest))
    assert any("max parallelism 1048576" in one for one in refusals(encode_metadata(larger)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            b"base.LongSerializer$LongSerializerSnapshot",
            b"base.LongSerializer$LongSerializerSnapshod",
        ),
        (b"org.apache.flink.runtime.state.Void", b"org.apache.fmink.runtime.state.Void"),
        (b"TimerSerializerSnapshot", b"TimerSerIalizerSnapshot"),
    ],
)
def test_a_serializer_whose_class_is_misspelt_is_refused(old: bytes, new: bytes) -> None:
    golden = images.image(NAME)
    files = {path: content.replace(old, new) for path, content in golden.files.items()}
    assert files != golden.files
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep")
    assert shown.code == 5
    assert "which would be org.apache.flink." in shown.out


def test_a_job_s_own_classes_are_not_misspelt() -> None:
    assert misspelt("jobs.Kinds$OwnSerializerSnapshot") is None
    base = "org.apache.flink.api.common.typeutils.base."
    for name in ("LocalDate", "Date", "Char", "Void", "Enum"):
        assert misspelt(f"{base}{name}Serializer${name}SerializerSnapshot") is None


def test_the_whole_image_is_accepted() -> None:
    assert refusals(whole()) == []
