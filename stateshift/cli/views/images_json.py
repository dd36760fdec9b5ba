"""The JSON documents of errors, images and judgements: values in, plain dictionaries out. Pure.

Those of plans and runs are in `as_json_run`. Names and shapes are a promise to CI steps and cron
lines: keys are added freely, and changed only with a reason. Locations and messages come without
the credentials that somebody may have put into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.errors import StateshiftError
    from stateshift.look import Differences, Judgement, Look, ShownEntry
    from stateshift.survey import Endpoint, Finding, Image, Operator, Survey

# Files below each of these many bytes are counted: what 6.2.3 of INFORE's D5.2 found to dominate a
# move.
IMAGE_DETAILS = ("layout", "drained", "metadata_version", "masters", "unaligned")

SMALL = (4 * 1024, 64 * 1024, 1024 * 1024)


def error(caught: StateshiftError) -> dict[str, Any]:
    """Every error has `error`, `message`, `hint` and `exit_code`; where it happened, as far as
    it is known, too.
    """
    return {key: _redacted(value) for key, value in caught.as_json().items()}


def finding(found: Finding) -> dict[str, Any]:
    return {
        "level": found.level,
        "message": redact(found.message),
        "path": found.path,
        "offset": found.offset,
        "hint": found.hint and redact(found.hint),
        "waive": found.waive,
    }


# ---- inspect, verify -----------------------------------------------------------------------------


def look(seen: Look, location: str) -> dict[str, Any]:
    """What `inspect` found: a directory's survey, or one file decoded."""
    if seen.survey is not None:
        return survey(seen.survey)
    assert seen.file is not None, "a look is at a directory or at a file"
    return {
        "location": redact(location),
        "engine": None,
        "kind": "file",
        "epoch": None,
        "epochs": [],
        "operators": [],
        "files": {"count": 1, "bytes": None, "needed": {"count": 0, "bytes": 0}},
        "paths": [],
        "warnings": [],
        "format": seen.file.format,
        "content": seen.file.value,
    }


def survey(found: Survey) -> dict[str, Any]:
    only = found.images[0] if len(found.images) == 1 else None
    return {
        "location": redact(found.location),
        "engine": found.engine,
        "kind": found.kind,
        "epoch": only.epoch if only else None,
        "epochs": list(only.epochs) if only else [],
        "operators": [operator(o, i) for i in found.images for o in i.operators],
        "files": files(found),
        "paths": [
            {"file": e.file, "path": redact(e.path), "count": e.count, "role": e.role}
            for i in found.images
            for e in i.embedded
        ],
        "warnings": [finding(f) for f in findings_of(found)],
        "images": [image(i) for i in found.images],
        "names": dict(found.names),
    }


def findings_of(found: Survey) -> tuple[Finding, ...]:
    return (*found.findings, *(f for image in found.images for f in image.findings))


def files(found: Survey) -> dict[str, Any]:
    sizes = [file.size for file in found.files]
    needed = needed_files(found)
    by_path = {file.path: file.size for file in found.files}
    return {
        "count": len(sizes),
        "bytes": sum(sizes),
        "needed": {"count": len(needed), "bytes": sum(by_path.get(path, 0) for path in needed)},
        "small": [
            {"below": below, "count": len(some), "bytes": sum(some)}
            for below in SMALL
            for some in [[size for size in sizes if size < below]]
        ],
    }


def needed_files(found: Survey) -> frozenset[str]:
    """Every path, relative to the location, that a restart reads."""
    return frozenset(path for image in found.images for path in image.needed_files)


def file_rows(found: Survey) -> list[dict[str, Any]]:
    needed = needed_files(found)
    return [
        {"path": f.path, "bytes": f.size, "modified": f.modified, "needed": f.path in needed}
        for f in found.files
    ]


def operator(found: Operator, of: Image) -> dict[str, Any]:
    return {
        "image": of.path,
        "id": found.id,
        "name": found.name or of.name,
        "uid": found.uid or of.name,
        "provider": found.provider,
        "shards": found.shards,
        "stores": [{"name": s.name, "files": s.files, "bytes": s.bytes} for s in found.stores],
        **found.details,
    }


def image(found: Image) -> dict[str, Any]:
    return {
        "path": found.path,
        "name": found.name,
        "id": found.identity,
        "epoch": found.epoch,
        "planned": found.planned,
        "epochs": list(found.epochs),
        "needed": len(found.needed_files),
        "written_by": found.written_by,
        "fence": found.fence,
        "endpoints": [endpoint(e) for e in found.endpoints],
        "strangers": [dict(one) for one in found.details.get("strangers", ())],
        "settings": dict(found.settings),
        **{key: value for key, value in found.details.items() if key in IMAGE_DETAILS},
    }


def endpoint(found: Endpoint) -> dict[str, Any]:
    """`details` is what is known of it, by kind: how far a source was read, which batches a sink
    has.
    """
    details = dict(found.details)
    offsets = details.get("offsets")
    if offsets is not None:
        details["offsets"] = {
            topic: {str(part): at for part, at in parts.items()} for topic, parts in offsets.items()
        }
        details["sum"] = {topic: sum(parts.values()) for topic, parts in offsets.items()}
    return {
        "role": found.role,
        "index": found.index,
        "kind": found.kind,
        "replayable": found.replayable,
        "detail": found.detail and redact(found.detail),
        "details": _redacted(details),
    }


def entry(shown: ShownEntry) -> dict[str, Any]:
    return {
        "operator": shown.operator,
        "store": shown.store,
        "shard": shown.shard,
        "key": shown.key,
        "value": shown.value,
    }


def judgement(found: Judgement) -> dict[str, Any]:
    return {
        "restartable": found.restartable,
        "epoch": found.epoch,
        "epochs": list(found.epochs),
        "findings": [finding(f) for f in found.findings],
        "images": [
            {"path": i.path, "name": i.name, "epoch": i.epoch, "epochs": list(i.epochs)}
            for i in found.images
        ],
    }


# ---- diff ----------------------------------------------------------------------------------------


def differences(found: Differences) -> dict[str, Any]:
    """Counts per operator, and within it per store. `equal` is null where something could not be
    compared, and all else is equal; `reason` says what.
    """
    return {
        "equal": None if found.different is None else not found.different,
        "same": compared(found.same),
        "reason": "; ".join(
            f"{operator}, {store}: {why}" for operator, store, why in found.incomparable
        )
        or None,
        "epochs": list(found.epochs),
        "operators": [
            _operator_differences(found, name)
            for name in dict.fromkeys(s.operator for s in found.stores)
        ],
        "incomparable": [
            {"operator": operator, "store": store, "message": why}
            for operator, store, why in found.incomparable
        ],
        "differences": [
            {
                "operator": d.operator,
                "store": d.store,
                "change": d.change,
                "key": d.key,
                "before": d.before,
                "after": d.after,
            }
            for d in found.shown
        ],
    }


def compared(counts: Mapping[str, int]) -> dict[str, int]:
    """What was compared and is the same: entries, files that were compared whole, key groups
    that were.
    """
    return {unit: counts.get(unit, 0) for unit in ("entries", "files", "key_groups")}


def _operator_differences(found: Differences, name: str) -> dict[str, Any]:
    own = [store for store in found.stores if store.operator == name]
    sums = {
        word: sum(getattr(store, word) for store in own)
        for word in ("added", "removed", "changed", "same")
    }
    stores = [
        {
            "name": s.store,
            "unit": s.unit,
            "added": s.added,
            "removed": s.removed,
            "changed": s.changed,
            "same": s.same,
        }
        for s in own
    ]
    return {"id": name, **sums, "stores": stores}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return value if value is None or isinstance(value, int | float) else str(value)
