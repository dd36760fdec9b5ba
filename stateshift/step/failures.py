"""A job's failure, for the run that started it: the patience with an ended query, and the hint."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from stateshift.clusters.protocol import Cluster, JobFailure, Remedy
from stateshift.errors import ClusterError
from stateshift.step.marks import content_of
from stateshift.storage.protocol import Storage

# A driver whose query has failed ends by itself, as a rule, and then its exit code tells more.
ENDING_SECONDS = 10.0
# A job may start its query again itself: after a failure that need not come again, it is given this
# long.
RESTARTING_SECONDS = 60.0
# A cluster is asked for its log so often: for some that is as much as two requests.
LOOK_SECONDS = 4.0

_BACK = (
    "`stateshift rollback WORKDIR` takes the run back, and starts the old job again if "
    "the spec says how"
)


@dataclass(slots=True)
class QueryWatch:
    """Looks for a query that has ended for good while its driver lives. Queries write `commits`."""

    storage: Storage
    commits: tuple[str, ...]
    seconds_max: float
    _since: dict[JobFailure, float] = field(default_factory=dict)
    _looked: float = float("-inf")

    @property
    def suspects(self) -> bool:
        """Whether the last look saw a query that has ended, and that has not had its time yet."""
        return bool(self._since)

    def ended(self, cluster: Cluster, tag: str, now: float) -> JobFailure | None:
        """Return the failure of a query that nothing starts again, once it has had its time."""
        if now - self._looked < min(LOOK_SECONDS, self.seconds_max / 10):
            return None
        self._looked = now
        failure = ended_query(cluster, tag, self.storage, self.commits)
        if failure is None:
            self._since.clear()
            return None
        since = self._since.setdefault(failure, now)
        patience = ENDING_SECONDS if failure.final else RESTARTING_SECONDS
        return failure if now - since >= min(patience, self.seconds_max / 4) else None


def ended_query(
    cluster: Cluster, tag: str, storage: Storage, commits: tuple[str, ...]
) -> JobFailure | None:
    """Return the failure of this job's query, whose driver lives; not of one kept elsewhere."""
    failure = None
    with suppress(ClusterError):  # a log that cannot be had now is asked for again
        failure = cluster.failure(tag, alive=True)
    if failure is None or failure.query is None:
        return failure
    # The file with the id of a query lies beside the folder of its commits. It may not be written.
    paths = [PurePosixPath(commit).parent.parent / "metadata" for commit in commits]
    contents = [content_of(storage, str(path)) for path in paths]
    identities = [content for content in contents if content is not None]
    query = failure.query.encode()
    is_of_job = not identities or any(query in identity for identity in identities)
    return failure if is_of_job else None


def hint_for(failure: JobFailure | None, location: str, otherwise: str) -> str:
    """Return the commands that lead on; `otherwise` is the effect of a resume of unknown use."""
    remedy = failure.remedy if failure is not None else Remedy.UNKNOWN
    match remedy:
        case Remedy.ROLLBACK:
            return (
                f"{_BACK}. Resuming does not help: the job would be started on the same state and "
                "fail in the same way (see what is wrong with it: stateshift verify --deep "
                f"{location})"
            )
        case Remedy.OTHER_JOB:
            return (
                f"{_BACK}. Resuming as it is does not help: the application does not fit this "
                'state. With one that does as "application" under "submit": '
                "`stateshift resume WORKDIR --spec FILE`"
            )
        case Remedy.OTHER_SUBMIT:
            return (
                'correct "submit" in the spec, then `stateshift resume WORKDIR --spec FILE` '
                f"starts the job with it; or {_BACK}"
            )
        case Remedy.UNKNOWN:
            other = 'with another "submit": `stateshift resume WORKDIR --spec FILE`'
            return f"{_BACK}; {otherwise} ({other})"
