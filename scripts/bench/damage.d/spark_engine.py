"""A sample of damage given to a real Spark: what it makes of what we say yes to, and of what we
refuse.

    bases   jobs that a real Spark ran to their third batch, and another time on to their end; and
            the kinds of them that golden images have, too: a planned batch, exchanged files, paths
            of another place
    sample  as many yes as no of `verify --deep`, of the same mutations as the golden images get;
            or, of so many mutations, every yes and a no for every fourth of them
    Spark   works: it restarts and puts out what the untouched job does; fails; or wrong: it puts
            out
            something else

The jobs are those of tests/acceptance/matrix. What Spark said is kept with the bytes that it was
said of, so that only what changed is asked again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from held import Held, cache

from tests.acceptance.matrix.damage import BASES, Damage, copied, sidecar
from tests.acceptance.matrix.damaging import files_of, sparks_verdict, write_files
from tests.acceptance.matrix.ground import Ground, Order, digest_of, later
from tests.acceptance.matrix.kinds import NEWEST, Base
from tests.acceptance.matrix.running import Version
from tests.damage.images import VARIANTS, GoldenImage, as_variant, spark_image
from tests.damage.meaning import meaning
from tests.damage.mutations import Damaged, made
from tests.damage.verdicts import Verdict, judged

DRAWN_MAX = 60  # of each base, until it has as many yes and no as wanted
AT_ONCE = 25
NO_OF_YES = 4  # so many yes for a no, where every yes is asked about


def held_against(sample: int, every_yes: bool = False) -> list[Held]:
    """So many mutations, half of which we say yes to; or every yes of so many."""
    folder = cache() / "spark"
    version = Version(NEWEST, folder, Path(sys.executable))
    bases = [Base(NEWEST, *name.split(".")) for name in BASES]
    version.prepare([(base, part) for base in bases for part in ("whole", "untouched")])
    kinds = [(base, variant) for variant in ("", *VARIANTS) for base in bases]
    each = -(-sample // len(kinds))
    chosen: list[tuple[Base, Damaged, Verdict]] = []
    for base, variant in kinds:
        draw = every_yes_of if every_yes else drawn
        chosen += draw(version.ground, base, variant, each)
    found: list[Held] = []
    for start in range(0, len(chosen), AT_ONCE):
        found += _asked(version, chosen[start : start + AT_ONCE])
        print(f"Spark was asked about {len(found)} of {len(chosen)}", file=sys.stderr, flush=True)
    return found


def every_yes_of(
    ground: Ground, base: Base, variant: str, each: int
) -> list[tuple[Base, Damaged, Verdict]]:
    """All of the first mutations of the base that we say yes to, and some of the others."""
    judged = [*_judged(ground, base, variant, each)]
    yes = [one for one in judged if one[2].code == 0]
    no = [one for one in judged if one[2].code != 0]
    return [*yes, *no[: -(-len(yes) // NO_OF_YES)]]


def _judged(
    ground: Ground, base: Base, variant: str, count: int
) -> Iterator[tuple[Base, Damaged, Verdict]]:
    """The first mutations of the base; none where it has nothing for the variant."""
    for number in range(count):
        golden = _golden(ground, base, variant, number)
        if variant == "elsewhere" and not any("/_metadata/v2/" in path for path in golden.files):
            return
        damaged = _without_stale(made(golden, number))
        whole = meaning("spark", golden.location, golden.files)
        yield base, damaged, judged(golden, damaged, whole)


def drawn(
    ground: Ground, base: Base, variant: str, each: int
) -> list[tuple[Base, Damaged, Verdict]]:
    """The first mutations of the base, as many yes as no where there are."""
    wanted = {True: each // 2, False: each - each // 2}
    chosen: list[tuple[Base, Damaged, Verdict]] = []
    for one in _judged(ground, base, variant, DRAWN_MAX):
        is_yes = one[2].code == 0
        if wanted[is_yes] > 0:
            wanted[is_yes] -= 1
            chosen.append(one)
        if not any(wanted.values()):
            break
    return chosen


def _without_stale(damaged: Damaged) -> Damaged:
    """Without Hadoop's checksums of what was damaged: on most stores there are none."""
    stale = {sidecar(path) for path in (damaged.path, damaged.other) if path is not None}
    files = {path: content for path, content in damaged.files.items() if path not in stale}
    return replace(damaged, files=files)


def _golden(ground: Ground, base: Base, variant: str, number: int) -> GoldenImage:
    """The base as it lies where Spark is given it: a copy of its own for each damage."""
    target = _target(ground, base, f"{variant or 'any'}-{number}")
    source = ground.place(base.name, "whole") / "checkpoint"
    files = copied(files_of(source), str(source), str(target))
    at = f"file://{target}"
    placed = {f"{at}/{path}": content for path, content in files.items()}
    golden = spark_image(f"{base.version}/{base.name}", at, placed)
    return as_variant(golden, variant) if variant else golden


def _target(ground: Ground, base: Base, number: str) -> Path:
    return ground.folder / "damaged" / f"{base.name}-{number}" / "checkpoint"


def _asked(version: Version, chosen: list[tuple[Base, Damaged, Verdict]]) -> Iterator[Held]:
    """Spark's word, by running those that it has not been asked about as they are now."""
    orders = {damaged.id: _written(version.ground, base, damaged) for base, damaged, _ in chosen}
    digests = {id_: digest_of([order]) for id_, order in orders.items()}
    held = version.evidence.held
    new = [id_ for id_ in orders if held.get(_key(id_), [None])[0] != digests[id_]]
    told = version.spark([orders[id_] for id_ in new]) if new else {}
    for base, damaged, verdict in chosen:
        id_ = damaged.id
        if id_ in new:
            shape = Damage(base, damaged.action, verdict.role)
            said = sparks_verdict(version.ground, shape, orders[id_], told[orders[id_].name])
            version.evidence.add(_key(id_), [digests[id_], said])
        shutil.rmtree(orders[id_].checkpoint.parent, ignore_errors=True)
        yield Held(verdict, held[_key(id_)][1])


def _key(id_: str) -> str:
    return f"bench/{id_}"


def _written(ground: Ground, base: Base, damaged: Damaged) -> Order:
    name, _, number = damaged.id.rpartition("#")
    target = _target(ground, base, f"{name.partition('+')[2] or 'any'}-{number}")
    shutil.rmtree(target.parent, ignore_errors=True)
    top = f"file://{target}/"
    files = {path.removeprefix(top): content for path, content in damaged.files.items()}
    write_files(target, files)
    name = f"damage {damaged.id}"
    conf = later(base.conf)
    return Order(name, base.query, ground.inputs(), target, target.parent / "output", conf)
