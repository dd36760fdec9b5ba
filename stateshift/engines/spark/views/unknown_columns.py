"""What is said of entries that are shown as bytes, since the checkpoint does not name their
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
    operator = f"{image.path}/{view.operator}" if image.path else view.operator
    return (
        f"operator {operator}, store {view.store}: {_unknown(view)} are hexadecimal, "
        f"because the checkpoint has no schema that tells their columns; {_WAY_OUT}"
    )


def _unknown(view: StoreView) -> str:
    columns = {"keys": view.key, "values": view.value}
    return " and ".join(name for name in columns if columns[name] is None)
