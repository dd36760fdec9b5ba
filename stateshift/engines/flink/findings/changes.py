"""Which changes a Flink image supports. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.flink.changes import Rescale, changed
from stateshift.formats.flink.java_data import fits_utf
from stateshift.formats.flink.key_groups import PARALLELISM_MAX
from stateshift.specification import JobSpec
from stateshift.survey import Finding

# What `transform` may ask of a Flink image.
CHANGES = ("drop", "rename", "merge", "convert", "rescale", "repair", "union")
_INSTEAD = {
    "repartition": (
        '{"kind": "rescale", "parallelism": 4, "max_parallelism": 128} is what repartitions '
        "keyed state"
    ),
    "split": '"operators": [...] of each job says which operators it takes',
    "compact": 'a savepoint has no chain of changes: "stop": {"format": "canonical"}',
}


def of_changes(job: JobSpec) -> Iterator[Finding]:
    """Yield a refusal for each change, or option of one, that Flink images do not support, and for
    each new uid of more than 65,535 bytes.
    """
    for change in job.transform:
        if change["kind"] not in CHANGES:
            instead = f"{_INSTEAD[change['kind']]}; " if change["kind"] in _INSTEAD else ""
            yield Finding(
                "refuse",
                f"a Flink image cannot be changed by {change['kind']!r}",
                hint=f'{instead}what can be asked for: {", ".join(CHANGES)}; and "operators" keeps '
                "some",
            )
    if _only(job, "convert", "flink"):
        yield Finding(
            "refuse",
            "a Flink image is converted for a Flink",
            hint='{"kind": "convert", "flink": "1.20"}',
        )
    most = Rescale.of(changed(job, "rescale")).max_parallelism or 0
    if most > PARALLELISM_MAX:
        yield Finding(
            "refuse",
            f"a max parallelism of {most} is more than Flink takes",
            hint=f'"max_parallelism" up to {PARALLELISM_MAX}',
        )
    if _only(job, "rename", "operators", "of"):
        yield Finding(
            "refuse",
            "of a Flink image, operators can be renamed",
            hint='"operators": {"old": "new"}',
        )
    for new in _new_names(job):
        if not fits_utf(new):
            yield Finding(
                "refuse", f"{new[:40]!r}... is longer than Flink can write a uid (65535 bytes)"
            )
    if _only(job, "drop", "operators", "of"):
        yield Finding(
            "refuse",
            "of a Flink image, operators can be left out",
            hint='"operators": ["uid", ...]',
        )


def _new_names(job: JobSpec) -> Iterator[str]:
    for change in job.transform:
        if change["kind"] == "rename":
            yield from dict(change.get("operators", {})).values()


def _only(job: JobSpec, kind: str, *keys: str) -> bool:
    """Whether a change asks for something that is another engine's."""
    changes = [change for change in job.transform if change["kind"] == kind]
    return any(change.keys() - {"kind", *keys} for change in changes)
