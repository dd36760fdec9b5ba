"""`python -m stateshift`: the command line."""

import sys

from stateshift.cli import main

if __name__ == "__main__":
    sys.exit(main())
