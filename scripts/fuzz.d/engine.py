"""One format, fuzzed by libFuzzer under atheris until its CPU time is used up: the process that
`main` starts.

    engine.py FORMAT FOLDER SECONDS

    FOLDER/corpus/   inputs that reach code no other does
    FOLDER/broken/   <sign>.input, <sign>.txt: the smallest input for each way in which something
                     broke
    FOLDER/now.json  what this process has done so far, written every few seconds and at its end

An input that breaks something does not stop it. Hangs, crashes of native code and the kernel's
killer do: libFuzzer leaves the input as an artifact in FOLDER, and `main` goes on with a new
process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import sys
import time
import traceback
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy  # noqa: E402, F401  (native libraries first: only our own code and zipfile's is instrumented)
import pyarrow  # noqa: E402, F401

with atheris.instrument_imports(include=["stateshift", "zipfile"], enable_loader_override=False):
    import zipfile  # noqa: F401

    from tests.fuzz.targets import Target, all_targets

    TARGETS = all_targets()
from tests.fuzz.oracles import Meter  # noqa: E402

HANG_SECONDS = 90
RSS_MAX_MIB = 3000
ADDRESS_MAX = 12 << 30


class Engine:
    def __init__(self, target: Target, folder: Path, seconds: float) -> None:
        self.target, self.folder, self.seconds = target, folder, seconds
        self.meter = Meter()
        self.executions = 0
        self.broken = 0
        self._told = 0.0

    def one(self, data: bytes) -> None:
        self.executions += 1
        try:
            self.meter.run(self.target.run, data)
        except KeyboardInterrupt:
            raise
        except Exception as error:
            self.broken += 1
            self._keep(data, error)
        if self.executions % 16 == 0:
            spent = time.process_time()
            if spent - self._told > 5:
                self._told = spent
                self.tell(spent)
            if spent > self.seconds:
                self.tell(spent)
                os._exit(0)

    def tell(self, spent: float) -> None:
        now = {
            "cpu_seconds": round(spent, 1),
            "executions": self.executions,
            "broken": self.broken,
            "slowest_ms": round(self.meter.slowest * 1000),
            "largest_growth_mib": self.meter.largest >> 20,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        place = self.folder / "now.json"
        temporary = place.with_suffix(".tmp")
        temporary.write_text(json.dumps(now))
        temporary.replace(place)

    def _keep(self, data: bytes, error: Exception) -> None:
        """The smallest input of each sign: the kind of the error, and the line of ours that it
        came from.
        """
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "/stateshift/" in f.filename
        ]
        said = re.sub(r"-?[0-9]+", "N", str(error).partition(":")[0])[:60]
        last = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else said
        sign = hashlib.sha1(f"{type(error).__name__} {last}".encode()).hexdigest()[:12]
        place = self.folder / "broken" / f"{sign}.input"
        if place.exists() and place.stat().st_size <= len(data):
            return
        place.write_bytes(data)
        text = "".join(traceback.format_exception(error)[-12:])
        place.with_suffix(".txt").write_text(f"{type(error).__name__} {last}\n\n{text[-6000:]}")


def main() -> None:
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    engine = Engine(TARGETS[name], folder, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_MAX, ADDRESS_MAX))
    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in engine.target.words))
    arguments = [
        sys.argv[0],
        str(folder / "corpus"),
        f"-max_len={engine.target.bytes_max}",
        f"-timeout={HANG_SECONDS}",
        f"-rss_limit_mb={RSS_MAX_MIB}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-len_control=0",
        *([f"-dict={words}"] if engine.target.words else []),
    ]
    atheris.Setup(arguments, engine.one, internal_libfuzzer=True)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
