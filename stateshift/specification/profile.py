"""A profile: what several specs and commands have in common, under a name. Pure.

    [profile.dr]                        --profile dr
    throttle = "50MB"                   throttle and parallel: of a spec that does not say them
    workdirs = "/var/runs"              workdirs, fleet, memory, json, policy: as of the file
    [profile.dr.storages]
    backup = "s3://bucket/checkpoints"  backup:/orders is s3://bucket/checkpoints/orders
    [profile.dr.clusters.flink]         a cluster that a spec may name without describing it
    kind = "flink_rest"
    url = "http://jobmanager:8081"

The command line comes before the spec, and the spec before the profile. `backup:/orders` is no
location where no profile gives it a meaning: it never becomes a local file by mistake. It has
its meaning where a location is read, and nowhere else: other texts of a spec stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stateshift.errors import SpecError
from stateshift.specification.grammars import fold, rate
from stateshift.specification.key import Key, Keys, Kind, NamesAdded, Reader, Values, nothing_added
from stateshift.specification.location import NoLocation, Storages, names_storage
from stateshift.specification.model import ClusterSpec, GivenByProfile
from stateshift.specification.place import Complaints, Place
from stateshift.specification.spec_keys import CLUSTER_LIST, SPEC, THROTTLE_OBJECT
from stateshift.specification.text import protect, read_text
from stateshift.specification.values import BOOLEAN, COUNT, LOCATION, TEXT
from stateshift.specification.written import Written, WrittenObject


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: the settings of commands, and what it gives to specs as these spell it."""

    name: str
    file: str
    settings: Mapping[str, object]
    clusters: Mapping[str, object]
    cluster_specs: tuple[ClusterSpec, ...]
    storages: Mapping[str, str]
    defaults: Mapping[str, object]
    spelled: Mapping[str, object]  # the same defaults, as the file has them

    def located(self, value: object, name: str) -> object:
        """Return the value of an argument called `name`, or its values, with locations in full."""
        if isinstance(value, list | tuple):
            return [self.located(each, name) for each in value]
        if not isinstance(value, str):
            return value
        try:
            return Storages(self.storages).whole(value) or value
        except NoLocation as error:
            expected = str(error)
            raise SpecError.of(name, f"{value} is no location", None, expected) from error

    def beneath(self, written: Written) -> tuple[Written, GivenByProfile]:
        """Return a spec with what it does not say itself, and the names of what that was."""
        gave: list[str] = []
        tree = written.tree
        if isinstance(tree, dict):
            said: dict[str, str] = {}
            for spelling in tree:
                key = SPEC.find(spelling)
                said |= {key.name: spelling} if key else {}
            at = said.get("clusters", "clusters")
            own = tree.get(at)
            if own is None:
                own = tree[at] = WrittenObject(())
            named = self.clusters.keys() & set(_clusters_named(tree))
            for name in sorted(named.difference(_names(own))):
                cluster = _written(self.clusters[name])
                gave.append(f"cluster {name}")
                if isinstance(own, dict):
                    own[name] = cluster
                elif isinstance(own, list) and isinstance(cluster, dict):
                    own.append(WrittenObject([("name", name), *cluster.items()]))
            for name in sorted(self.defaults.keys() - said.keys()):
                tree[name] = _written(self.defaults[name])
                gave.append(f"{name} {self.spelled[name]}")
        given = GivenByProfile(self.name, self.file, tuple(gave))
        return Written(tree, written.complaints, Storages(self.storages)), given


def read_profile(
    name: str,
    file: str,
    table: Mapping[str, object],
    environment: Mapping[str, str],
    names_added: NamesAdded,
) -> Profile:
    """Return a profile of a file's table; raise SpecError with all complaints, at /profile/NAME."""
    known, values = _read({"profile": {name: table}}, ("profile", name), environment, names_added)
    clusters = known["clusters"].value if "clusters" in known else {}
    if isinstance(clusters, list):  # [[profile.dr.clusters]]
        clusters = {cluster["name"]: cluster for cluster in clusters}
    return Profile(
        name,
        file,
        {key: values[key] for key in OF_COMMANDS if key in values},
        clusters,
        values.get("clusters") or (),
        values.get("storages") or {},
        {key: values[key] for key in LIMITS if key in values},
        {key: known[key].value for key in LIMITS if key in values},
    )


def read_settings(
    table: Mapping[str, object], environment: Mapping[str, str]
) -> Mapping[str, object]:
    """Return the settings that stand in a file outside of its profiles."""
    known, values = _read(table, (), environment, nothing_added)
    return {name: known[name].value if name == "throttle" else values[name] for name in known}


def _read(
    table: Mapping[str, object],
    names: tuple[str, ...],
    environment: Mapping[str, str],
    names_added: NamesAdded,
) -> tuple[dict[str, Place], Values]:
    """Return the places and the values of the part of a file below these names."""
    complaints = Complaints()
    tree = json.loads(json.dumps(table, default=str), object_pairs_hook=WrittenObject)
    place = read_text(Written(tree), environment, complaints)
    for name in names:
        place = place / name
    reader, keys = Reader(complaints, None, names_added), PROFILE if names else SETTINGS
    known = reader.known(place, keys)
    values = {key: reader.value(keys[key], at) for key, at in known.items()}
    if complaints.made:
        raise SpecError(tuple(complaints.made))
    return known, values


def _names(clusters: object) -> Iterator[str]:
    """Yield the names of clusters, which are a map or a list."""
    if isinstance(clusters, dict):
        yield from clusters
    for each in clusters if isinstance(clusters, list) else ():
        yield str(each.get("name") if isinstance(each, dict) else each)


def _written(value: object) -> object:
    """Return a value as it would be written in a spec."""
    return json.loads(json.dumps(protect(value)), object_pairs_hook=WrittenObject)


def _clusters_named(tree: object) -> Iterator[str]:
    """Yield the clusters that jobs are on, or that `rebalance` names; not any text that is alike:
    a spec without such a list moves jobs between all clusters that it has.
    """
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if fold(key).endswith("cluster") and isinstance(value, str):
            yield value
        if fold(key) == "rebalance" and isinstance(value, dict):
            yield from _names(value.get("clusters"))
        yield from _clusters_named(value)
    for item in tree if isinstance(tree, list) else ():
        yield from _clusters_named(item)


def _throttle(reader: Reader, key: Key, place: Place) -> object:
    """Read a rate; in a profile, whose spec takes them, also a table of limits."""
    limits = place.value
    if isinstance(limits, dict) and key is not SETTINGS["throttle"]:
        return THROTTLE_OBJECT.read(reader, key, place) and limits
    if not reader.is_a(place, str, 'a rate, such as "50MB"'):
        return None
    try:
        return {"bytes_per_second": rate(limits)}
    except ValueError as error:
        reader.complaints.add(place, str(error), 'a rate, such as "50MB"')
    return None


def _storages(reader: Reader, key: Key, place: Place) -> dict[str, str]:
    storages: dict[str, str] = {}
    is_table = reader.is_a(place, dict, "a table of locations")
    for name, at in place.children if is_table else ():
        location = LOCATION.read(reader, key, at)
        if not names_storage(str(name)):
            message = f"{name!r} cannot be told from the scheme of a URL, or is no name"
            reader.complaints.add(at, message, "a name of letters, digits, _ and -")
        elif isinstance(location, str) and "://" not in location:
            reader.refuse(at, "a whole location: a URL, or a path from the root on")
        elif isinstance(location, str):
            storages[str(name)] = location
    return storages


LIMITS = ("parallel", "throttle")
OF_COMMANDS = ("workdirs", "fleet", "memory", "json", "policy")
_THROTTLE = Kind("throttle", _throttle, {})
SETTINGS = Keys(
    None,
    throttle=_THROTTLE("Bytes a second at most."),
    parallel=COUNT("How many steps at once, of a spec that does not say."),
    workdirs=TEXT("Where workdirs are made."),
    fleet=TEXT("A Spark master whose executors share the work."),
    memory=TEXT("How much memory a process may take for what it reads."),
    json=BOOLEAN("Whether commands print JSON."),
    policy=TEXT("A file of rules that every new run has to keep."),
)
PROFILE = Keys(
    None,
    *(key for key in SETTINGS.all if key.name != "throttle"),
    throttle=_THROTTLE("Limits of a spec that has none."),
    clusters=CLUSTER_LIST("Clusters that a spec may name."),
    storages=Kind("storages", _storages, {})("Locations by a name: NAME:/path is below one."),
)
