"""One damaged image, judged: what the commands say of it, held against what a restart would read of
it.

    verdict_of("spark-4.3.0/window-hdfs#17")    Verdict

Commands run in this process, through the command line's own entry, so that its mapping of errors to
exit codes is part of what is judged. The image lies on a disk in memory.

    detected   `verify --deep` refuses it: exit 3 or 5
    harmless   it says yes, and a restart reads the same
    earlier    it says yes to an earlier batch, which is as it was
    unchecked  it says yes, a restart reads something else, no checksum covers it, and a note says
               so
    unnamed    the same, and no note says so
    missed     it says yes, and a restart reads something else
    traceback  a bug of ours: exit 1, or an exception that left the command
    odd        another exit code: a refusal by the wrong name
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from tests.damage.apply import applied
from tests.damage.commands import about, document_of, run
from tests.damage.images import GoldenImage, image, on_a_disk
from tests.damage.meaning import Meaning, differences, meaning
from tests.damage.mutations import Damaged, made
from tests.damage.unchecked import is_named, no_checksum

REFUSED = (3, 5)
FAILURES = ("missed", "unnamed", "traceback", "odd", "hang", "memory")
"""Results that make the bench fail."""


@dataclass(frozen=True)
class Verdict:
    """What was done, and what came of it. `about` is the first line that says why."""

    id: str
    result: str
    engine: str = ""
    version: str = ""
    provider: str = ""
    kind: str = ""
    role: str = ""
    action: str = ""
    path: str = ""
    what: str = ""
    code: int | None = None
    about: str = ""
    differs: tuple[str, ...] = ()
    same: bool = False  # a restart reads the same
    warned: str = ""  # the first warning beside a yes
    apply: str = ""  # what `apply` made of it: see `applied`
    seconds: float = 0.0
    mib: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "differs": list(self.differs)}


def verdict_of(id_: str, with_apply: bool = False) -> Verdict:
    """Make the damage that `id_` names, and judge it."""
    name, _, number = id_.rpartition("#")
    golden = image(name)
    damaged = made(golden, int(number))
    found = judged(golden, damaged, meaning_of(name))
    if with_apply and found.code != 0:
        found = replace(found, apply=applied(golden, damaged))
    return found


def judged(golden: GoldenImage, damaged: Damaged, whole: Meaning) -> Verdict:
    """What `verify --deep` says, and whether that is so: the `whole` image is what it must be."""
    shown = run(on_a_disk(damaged.files), "verify", golden.location, "--deep", "--json")
    document = document_of(shown)
    after = meaning(golden.engine, golden.location, damaged.files)
    differing = differences(whole, after)
    result = "odd"
    if shown.code == 0:
        result = _accepted(golden, damaged, document, (whole, after), differing)
    elif shown.code in REFUSED:
        result = "detected"
    elif shown.code in (None, 1):
        result = "traceback"
    return Verdict(
        id=damaged.id,
        result=result,
        engine=golden.engine,
        version=golden.version,
        provider=golden.provider,
        kind=golden.kind,
        role=golden.role_of(damaged.path),
        action=damaged.action,
        path=damaged.path[len(golden.location) + 1 :] if golden.engine == "spark" else damaged.path,
        what=damaged.what,
        code=shown.code,
        about=about(shown, document),
        differs=tuple(differing[:5]),
        same=not differing,
        warned=_first_warning(document) if shown.code == 0 else "",
    )


def _first_warning(document: Any) -> str:
    return next((one["message"] for one in document["findings"] if one["level"] == "warn"), "")


def _accepted(
    golden: GoldenImage,
    damaged: Damaged,
    document: Any,
    means: tuple[Meaning, Meaning],
    differing: list[str],
) -> str:
    """`verify` said yes."""
    if not differing:
        return "harmless"
    if is_earlier(golden, document, *means):
        return "earlier"
    if no_checksum(golden, damaged) is None:
        return "missed"
    return "unchecked" if is_named(document["findings"], golden, damaged) else "unnamed"


def is_earlier(golden: GoldenImage, document: Any, whole: Meaning, after: Meaning) -> bool:
    """Whether the yes is to an earlier batch by its number, and the image is what it was when that
    batch had ended."""
    epoch = document["epoch"]
    if golden.engine != "spark" or epoch is None or epoch >= whole["batch"][0]:
        return False
    before = meaning("spark", golden.location, _without_commits(golden, epoch))
    return not differences(before, after)


def _without_commits(golden: GoldenImage, epoch: int) -> dict[str, bytes]:
    top = f"{golden.location}/commits/"
    newer = {
        path
        for path in golden.files
        if path.startswith(top) and int(path.removeprefix(top)) > epoch
    }
    return {path: content for path, content in golden.files.items() if path not in newer}


@lru_cache(maxsize=64)
def meaning_of(name: str) -> Meaning:
    golden = image(name)
    return meaning(golden.engine, golden.location, golden.files)
