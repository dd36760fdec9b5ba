"""The engines, cluster kinds, storages and kinds of sources that other installed packages add, by
entry points.

    [project.entry-points."stateshift.engines"]
    toy = "toy_engine:ENGINE"

    [project.entry-points."stateshift.clusters"]
    toy = "toy_cluster:KIND"

    [project.entry-points."stateshift.storages"]
    toy = "toy_storage:open_storage"

    [project.entry-points."stateshift.sources"]
    toy = "toy_source:KIND"

The name is what a spec writes: `"engine": "toy"`, `"kind": "toy"`, the scheme of `toy://...`. A
package is imported when its name is asked for, and not before; one that adds a kind of source, when
an image has a source that stateshift does not know. A name that stateshift has itself cannot be
taken.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from stateshift.errors import PlanError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINES = "stateshift.engines"
CLUSTERS = "stateshift.clusters"
STORAGES = "stateshift.storages"
SOURCES = "stateshift.sources"


def names_added(group: str) -> Collection[str]:
    """Return the names that installed packages add to a group. Imports none of them."""
    return sorted({entry.name for entry in _entries(group)})


def load(group: str, name: str) -> Any:
    """Import the object that an installed package adds under a name.

    Args:
        group: ENGINES, CLUSTERS, STORAGES or SOURCES.
        name: one of `names_added(group)`.
    Returns:
        The object that the entry point names. Whether it keeps the protocol is for the caller.
    Raises:
        PlanError: two packages add the name, or the package cannot be imported.
    """
    candidates = [entry for entry in _entries(group) if entry.name == name]
    if not candidates:
        raise PlanError(f"no installed package adds {name!r} to {group}")
    if len({entry.value for entry in candidates}) > 1:
        packages = sorted(_package(entry) for entry in candidates)
        raise PlanError(
            f"{' and '.join(packages)} both add {name!r} to {group}",
            hint=f"keep one of them: python -m pip uninstall {packages[0]}",
        )
    entry = candidates[0]
    try:
        return entry.load()
    except Exception as error:
        raise PlanError(
            f"{name!r} of {group} cannot be loaded from {entry.value}: "
            f"{type(error).__name__}: {error}",
            hint=_hint(entry),
        ) from error


def refuse(group: str, name: str, lacks: str) -> PlanError:
    """Return the error for an entry point whose object does not keep the protocol."""
    entry = next(entry for entry in _entries(group) if entry.name == name)
    return PlanError(f"{name!r} of {group} ({entry.value}) {lacks}", hint=_hint(entry))


def _entries(group: str) -> list[EntryPoint]:
    # imported here: it takes longer than the rest of a command's start, and is seldom needed
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def _hint(entry: EntryPoint) -> str:
    package = _package(entry)
    return (
        f"mend the package that adds it (python -m pip show {package}), "
        f"or remove it: python -m pip uninstall {package}"
    )


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
