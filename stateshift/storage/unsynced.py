"""A storage whose files nobody waits for: Unsynced."""

from __future__ import annotations

from stateshift.storage.wrappers import Throttled


class Unsynced(Throttled):
    """No faster than the pace, and never synced. The system writes to the disk when it likes: a
    process that is killed loses nothing, a power cut may lose any file that was written. `create`,
    `move` and `remove` are as durable as ever.
    """

    def sync(self) -> None:
        """Return at once."""
