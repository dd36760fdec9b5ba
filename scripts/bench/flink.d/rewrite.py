"""`_metadata` of one folder parsed, and what was parsed written to a file: python rewrite.py
FOLDER FILE
"""

import sys
from pathlib import Path

from stateshift.formats.flink import METADATA
from stateshift.formats.flink.metadata import decode_metadata, encode_metadata

if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(
        encode_metadata(decode_metadata((Path(sys.argv[1]) / METADATA).read_bytes()))
    )
