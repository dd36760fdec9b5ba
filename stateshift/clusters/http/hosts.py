"""Which machine a URL of a cluster leads to, and whether it is this one. No connection is made.

http://127.0.0.1:8998          ""         this machine
spark://one:7077,two:7077      one        a master and its spare
local[2]                       ""
yarn, k8s://https://host:443   the same   hosts are handed out: which, shows later
"""

from __future__ import annotations

import re
import socket

_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/@]*@)?(\[[^\]]*\]|[^/:,\[\]]+)")
_HERE = ("localhost", "0.0.0.0", "::1")


def host_of(url: str) -> str:
    """The host in a URL, or in host:port; empty where that is this machine."""
    found = _HOST.match(url)
    host = found[1].strip("[]") if found else url
    own = socket.gethostname()
    here = (
        host in _HERE
        or host.startswith("127.")
        or host.lower() in (own.lower(), own.partition(".")[0].lower())
    )
    return "" if here else host


def host_of_master(master: str) -> str:
    """The same of one of Spark's masters."""
    if master == "local" or master.startswith(("local[", "local-cluster[")):
        return ""
    return host_of(master) if master.startswith("spark://") else master
