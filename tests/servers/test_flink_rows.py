"""Rows within arrays and maps of SQL whose fields are renamed: Flink's own classes say whether they
take the snapshot, and read the old bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.flink import jvm
from stateshift.formats.flink.evolution import FieldChanges, evolve
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.serializers import read_snapshot
from tests.support.servers import Unavailable, downloads

pytestmark = [pytest.mark.servers, pytest.mark.row("W-9")]
CHANGES = {
    "rename": {"f0.a": "x", "f0.in.c": "y", "f1.a": "x", "f1.in.c": "y"},
}


class Rows:
    """Serializers of ROW<ARRAY<PAIR>, MAP<BIGINT, PAIR>>, where PAIR is ROW<a BIGINT, in ROW<c
    BIGINT>> with names of its own.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self.flink = gateway.jvm.org.apache.flink
        self._types = self.flink.table.types.logical

    def array(self, class_: Any, items: list[Any]) -> Any:
        made = self._gateway.new_array(class_, len(items))
        for number, item in enumerate(items):
            made[number] = item
        return made

    def row(self, *fields: tuple[str, Any]) -> Any:
        types = self.array(self._types.LogicalType, [type_ for _, type_ in fields])
        names = self.array(self._gateway.jvm.String, [name for name, _ in fields])
        return self._types.RowType.of(types, names)

    def serializer(self, outer: str, inner: str) -> Any:
        number = self._types.BigIntType()
        pair = self.row((outer, number), ("in", self.row((inner, number))))
        both = self._types.ArrayType(pair), self._types.MapType(number, pair)
        row = self.row(("items", both[0]), ("by_number", both[1]))
        return self.flink.table.runtime.typeutils.RowDataSerializer(row)

    def value(self) -> Any:
        data, objects = self.flink.table.data, self._gateway.jvm.Object
        long = self._gateway.jvm.Long.valueOf

        def row(*fields: Any) -> Any:
            return data.GenericRowData.of(self.array(objects, list(fields)))

        pair = row(long("5000000000"), row(long("7000000000")))
        by_number = self._gateway.jvm.java.util.HashMap()
        by_number.put(long("9000000000"), pair)
        items = data.GenericArrayData(self.array(objects, [pair, None]))
        return row(items, data.GenericMapData(by_number))

    def snapshot(self, serializer: Any) -> bytes:
        out = self.flink.core.memory.DataOutputSerializer(64)
        self._versioned.writeVersionedSnapshot(out, serializer.snapshotConfiguration())
        return bytes(out.getCopyOfBuffer())

    def takes(self, serializer: Any, snapshot: bytes) -> bool:
        source = self.flink.core.memory.DataInputDeserializer(snapshot)
        loader = self._gateway.jvm.Thread.currentThread().getContextClassLoader()
        old = self._versioned.readVersionedSnapshot(source, loader)
        found = serializer.snapshotConfiguration().resolveSchemaCompatibility(old)
        return bool(found.isCompatibleAsIs())

    @property
    def _versioned(self) -> Any:
        return self.flink.api.common.typeutils.TypeSerializerSnapshot


@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_flink_takes_rows_within_arrays_and_maps_whose_fields_are_renamed(version: str) -> None:
    try:
        lib = downloads.flink(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    gateway = jvm.launch(sorted(str(jar) for jar in Path(lib).glob("*.jar")))
    try:
        rows = Rows(gateway)
        old, new = rows.serializer("a", "c"), rows.serializer("x", "y")
        raw = rows.snapshot(old)
        out = rows.flink.core.memory.DataOutputSerializer(64)
        old.serialize(rows.value(), out)
        value = bytes(out.getCopyOfBuffer())

        renamed = evolve(raw, read_snapshot(DataInput(raw, "old"), True), FieldChanges.of(CHANGES))
        assert not rows.takes(new, raw) and rows.takes(new, renamed.snapshot)
        assert renamed.write(DataInput(value, "a value")) == value
        pair = {"x": 5_000_000_000, "in": {"y": 7_000_000_000}}
        read = read_snapshot(DataInput(renamed.snapshot, "new"), True).reader
        shown = {"f0": [pair, None], "f1": [[9_000_000_000, pair]]}
        assert read(DataInput(value, "a value")) == shown
    finally:
        gateway.shutdown()
