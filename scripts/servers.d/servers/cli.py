"""The command: words in, lines and exit codes out.

0    done; for status: whatever was started is up
1    a server did not come up, or is not up any more
2    there is no such server
69   something a server is made of cannot be had here
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

from servers.catalog import CATALOG, NAMES, UNNAMED, named
from servers.faults import Fault, Unavailable
from servers.running import Servers, State, default_root

BROKEN, UNKNOWN, UNAVAILABLE = 1, 2, 69


def main() -> int:
    asked = _arguments()
    unknown = [word for word in asked.names if not named(word)]
    if unknown:
        print(
            f"servers: no server is called {unknown[0]!r}\nhint: {' '.join(NAMES)}", file=sys.stderr
        )
        return UNKNOWN
    servers = Servers(Path(asked.root))
    names = [
        name for name in NAMES if name in {name for word in asked.names for name in named(word)}
    ]
    if asked.verb == "fetch":
        return _fetch(names or list(UNNAMED))
    if asked.verb == "up":
        return _up(servers, names or list(UNNAMED))
    if asked.verb == "down":
        return _down(servers, names or list(NAMES))
    if asked.verb == "env":
        return _env(servers, asked.json)
    return _status(servers, names or list(NAMES), asked.json)


def _arguments() -> argparse.Namespace:
    about = "Start real servers on this machine, and stop them."
    parser = argparse.ArgumentParser("scripts/servers", description=about)
    parser.add_argument(
        "--root",
        default=str(default_root()),
        help="where what is up is kept (default: %(default)s)",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, about in (
        ("up", "start servers, all but kubernetes if none is named, and wait until they answer"),
        ("fetch", "fetch what servers are made of, without starting any; `up` does so as well"),
        ("down", "stop servers, all if none is named, and remove what they held"),
        ("env", 'how to reach what is up, for the shell: eval "$(./scripts/servers env)"'),
        ("status", "what is up"),
    ):
        one = verbs.add_parser(verb, help=about, description=about)
        if verb != "env":
            one.add_argument(
                "names",
                nargs="*",
                metavar="NAME",
                help=f"{' '.join(NAMES)}; `hdfs` for both of them",
            )
        if verb in ("env", "status"):
            one.add_argument("--json", action="store_true", help="one JSON document")
    return parser.parse_args(namespace=argparse.Namespace(names=[], json=False))


def _up(servers: Servers, names: list[str]) -> int:
    code = 0
    for name in names:
        began = time.monotonic()
        try:
            state = servers.up(name)
        except Unavailable as reason:
            print(f"servers: {name} cannot be had: {reason}", file=sys.stderr)
            code = code or UNAVAILABLE
        except Fault as error:
            print(f"servers: {error}\nhint: scripts/servers down {name}", file=sys.stderr)
            code = BROKEN
        else:
            print(f"{_line(state)}  ({time.monotonic() - began:.1f} s)", flush=True)
    return code


def _fetch(names: list[str]) -> int:
    code = 0
    for name in names:
        try:
            CATALOG[name].fetch()
        except Unavailable as reason:
            print(f"servers: {name} cannot be had: {reason}", file=sys.stderr)
            code = UNAVAILABLE
        else:
            print(f"{name:10}  ready to start", flush=True)
    return code


def _down(servers: Servers, names: list[str]) -> int:
    for name in reversed(names):
        if servers.place(name).made:
            servers.down(name)
            print(f"{name:10}  stopped", flush=True)
    return 0


def _env(servers: Servers, as_json: bool) -> int:
    found = servers.exports()
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    for key, value in found.items():
        print(f"export {key}={shlex.quote(value)}")
    if "STATESHIFT_HDFS_COMMANDS" in found:
        print('export PATH="$STATESHIFT_HDFS_COMMANDS:$PATH"')
    return 0


def _status(servers: Servers, names: list[str], as_json: bool) -> int:
    states = [servers.state(name) for name in names]
    if as_json:
        print(
            json.dumps(
                {"root": str(servers.root), "servers": {s.name: asdict(s) for s in states}},
                indent=2,
            )
        )
    else:
        for state in states:
            print(_line(state))
    return BROKEN if any(state.word in ("crashed", "silent") for state in states) else 0


def _line(state: State) -> str:
    parts = [
        f"{role} {'is gone' if pid is None else f'pid {pid}'}" for role, pid in state.pids.items()
    ]
    held = [f"{state.resident_mib} MiB"] if state.resident_mib else []
    return f"{state.name:10}  {state.word:8}{', '.join([*parts, *held])}".rstrip()
