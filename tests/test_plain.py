"""Values to plain JSON and back."""

from __future__ import annotations

import json

import pytest

from stateshift import plain
from stateshift.step import AnyStep, CopyFiles, FenceSource, WriteFile
from stateshift.survey import FileInfo

STEPS: tuple[AnyStep, ...] = (
    CopyFiles("copy/0", "file:///a", "file:///b", (FileInfo("x", 3, 1.5), FileInfo("y/ü", 0))),
    FenceSource("halt/fence", "file:///a", ("offsets/3", "commits/3")),
    WriteFile.of("publish/0", "file:///b", "m", b"\x00\xff"),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_a_step_comes_back_from_json_as_it_was(step: AnyStep) -> None:
    text = json.dumps(plain.to_plain(step))
    assert plain.from_plain(AnyStep, json.loads(text)) == step


def test_an_unknown_kind_is_named_with_its_pointer() -> None:
    with pytest.raises(plain.Misfit, match="/1: unknown kind 'Explode'"):
        plain.from_plain(tuple[AnyStep, ...], [plain.to_plain(STEPS[0]), {"kind": "Explode"}])


def test_a_field_of_the_wrong_type_is_named_with_its_pointer() -> None:
    value = plain.to_plain(STEPS[1])
    value["paths"] = ["a", 3]
    with pytest.raises(plain.Misfit, match="/paths/1: expected str, found 3"):
        plain.from_plain(FenceSource, value)


def test_a_field_too_many_or_too_few_does_not_fit() -> None:
    value = plain.to_plain(STEPS[1])
    with pytest.raises(plain.Misfit, match="has no 'colour'"):
        plain.from_plain(FenceSource, {**value, "colour": "red"})
    with pytest.raises(plain.Misfit, match="needs 'location'"):
        plain.from_plain(FenceSource, {k: v for k, v in value.items() if k != "location"})


def test_the_fingerprint_does_not_depend_on_the_order_of_keys() -> None:
    assert plain.fingerprint({"a": 1, "b": 2}) == plain.fingerprint({"b": 2, "a": 1})
    assert plain.fingerprint({"a": 1}) != plain.fingerprint({"a": 2})
