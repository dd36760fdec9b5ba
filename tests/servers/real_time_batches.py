"""How far a query of one Kafka source has come, by its checkpoint."""

import json
from pathlib import Path


def committed(checkpoint: Path) -> int:
    """How many records the batches have read that are committed."""
    batch = newest(checkpoint)
    if batch < 0:
        return 0
    offsets = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
    return sum(sum(partitions.values()) for partitions in json.loads(offsets).values())


def newest(checkpoint: Path) -> int:
    """The last batch that is committed; -1 before the first."""
    committed = (checkpoint / "commits").glob("[0-9]*")
    return max((int(path.name) for path in committed), default=-1)
