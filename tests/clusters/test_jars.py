"""What a jar's own directory tells before a job is stopped for it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from stateshift.clusters.kind import check_submit
from stateshift.errors import SpecError
from stateshift.specification.model import ClusterSpec

FLINK = ClusterSpec("new", "flink_rest", {"url": "http://jm:8081"})


def jar(folder: Path, manifest: str | None = None, *names: str) -> str:
    path = folder / "orders.jar"
    with zipfile.ZipFile(path, "w") as made:
        if manifest is not None:
            made.writestr("META-INF/MANIFEST.MF", manifest)
        for name in names or ("shop/Orders.class", "shop/Orders$Count.class"):
            made.writestr(name, b"")
    return str(path)


@pytest.mark.parametrize(
    ("entry_class", "told"),
    [
        ("shop.Order", "the jar has no class 'shop.Order', did you mean 'shop.Orders'"),
        ("Orders", "the jar has no class 'Orders', did you mean 'shop.Orders'"),
        ("a.b.Else", "the jar has no class 'a.b.Else'"),
        (None, "the jar's manifest names no main class"),
    ],
)
def test_a_class_that_is_not_in_the_jar_is_refused_before_anything_is_stopped(
    tmp_path: Path, entry_class: str | None, told: str
) -> None:
    options = {"jar": jar(tmp_path), **({"entry_class": entry_class} if entry_class else {})}
    with pytest.raises(SpecError) as raised:
        check_submit(FLINK, options, "/jobs/0/submit")
    (complaint,) = raised.value.complaints
    assert (complaint.pointer, told in complaint.message) == ("/jobs/0/submit/entry_class", True)


@pytest.mark.parametrize(
    ("entry_class", "manifest", "names"),
    [
        ("shop.Orders", None, ()),
        (None, "Manifest-Version: 1.0\r\nMain-Class: shop.Orders\r\n", ()),
        (None, "program-class: shop.Orders\n", ()),
        ("org.apache.flink.client.python.PythonDriver", None, ()),
        ("shop.Orders", None, ("lib/inner.jar",)),
    ],
)
def test_a_class_that_is_there_or_may_be_is_taken(
    tmp_path: Path, entry_class: str | None, manifest: str | None, names: tuple[str, ...]
) -> None:
    options = {
        "jar": jar(tmp_path, manifest, *names),
        **({"entry_class": entry_class} if entry_class else {}),
    }
    check_submit(FLINK, options, "/submit")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but no more", b"\xca\xfe\xba\xbe"])
def test_what_is_no_jar_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "orders.jar").write_bytes(content)
    with pytest.raises(SpecError, match="is no jar that can be read"):
        check_submit(FLINK, {"jar": str(tmp_path / "orders.jar"), "entry_class": "A"}, "/submit")
