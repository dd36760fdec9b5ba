"""Writes who it is into a file, then becomes the command: `birth.py FILE COMMAND...`

A process keeps its pid and its start time when it executes something else, so whoever reads the
file knows the server itself, even if the one who started it died in between.
"""

import os
import sys


def main() -> None:
    file, *command = sys.argv[1:]
    pid = os.getpid()
    with open(f"/proc/{pid}/stat") as stat:
        started = stat.read().rpartition(")")[2].split()[19]
    with open(f"{file}.new", "w") as output:
        output.write(f"{pid} {started}\n")
    os.replace(f"{file}.new", file)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
