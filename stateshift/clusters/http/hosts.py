"""The machine that a URL of a cluster leads to, and whether it is this one. No connection is made.

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
    """Return the host in a URL, or in host:port; empty if that is this machine."""
    named = _HOST.match(url)
    host = named[1].strip("[]") if named else url
    if host in _HERE or host.startswith("127."):
        return ""
    own = socket.gethostname().lower()
    return "" if host.lower() in (own, own.partition(".")[0]) else host


def host_of_master(master: str) -> str:
    """Return the host of one of Spark's masters; empty if that is this machine."""
    if master == "local" or master.startswith(("local[", "local-cluster[")):
        return ""
    return host_of(master) if master.startswith("spark://") else master
