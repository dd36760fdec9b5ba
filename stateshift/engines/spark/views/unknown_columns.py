"""What is said of entries that are shown as bytes, since the checkpoint does not tell their
columns. Pure.
"""

from __future__ import annotations

from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.survey import Image

_WAY_OUT = (
    "a job of Spark 3.1 or later writes the schema when it is started there, and finishes a batch"
)


def note_of(view: StoreView, image: Image) -> str | None:
    """Return why the entries of a store are hexadecimal, and what would make columns of them; None
    where they are columns already.
    """
    if view.known:
        return None
    parts = {"keys": view.key, "values": view.value}
    unknown = " and ".join(name for name, columns in parts.items() if columns is None)
    operator = f"{image.path}/{view.operator}" if image.path else view.operator
    return (
        f"operator {operator}, store {view.store}: {unknown} are hexadecimal, because the "
        "checkpoint has no schema "
        f"that tells their columns; {_WAY_OUT}"
    )
