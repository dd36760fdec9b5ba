"""The command `scripts/servers`; what it does is in the package `servers` beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from servers.cli import main

if __name__ == "__main__":
    sys.exit(main())
