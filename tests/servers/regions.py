"""Two regions, one of which is killed again and again: its storage (SeaweedFS), its brokers and its
driver are processes of their own. The other has brokers with the same records, a driver that is up
already, and the standby on a disk.

    with regions(folder, dice) as both:      servers up, records sent
        with both.primary() as primary:      a job with a standby, new each time
            both.kill(primary)               SIGKILL of some of its processes, in some order
            both.bring_back()

What a job puts out is known: record n is the number n, of key n % 7, in partition n % 2. So a batch
whose offsets are known has one right output.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.errors import MissingFile
from stateshift.formats.marks import fence_owner
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from tests.acceptance.support import ROOT, environment
from tests.servers.standby import Following, following
from tests.support import s3
from tests.support.servers import Servers, downloads, group, s3_settings, spark

SERVER = Path(__file__).with_name("query_server.py")
TOPIC, PARTITIONS, KEYS, RECORDS = "numbers", 2, 7, 20_000
SECONDS_MAX = 240.0
FIND = """
name=${STATESHIFT_TAG:-$(printf %s "$STATESHIFT_LOCATION" | md5sum | cut -c1-32)}
[ -e "$JOBS/$name.state" ] || { echo absent; exit; }
read -r state pid < "$JOBS/$name.state"
case $state in queued|running) kill -0 "$pid" 2>/dev/null || state=absent ;; esac
echo "$state"
"""
SUBMIT = """
output=$OUTPUT; case $STATESHIFT_LOCATION in *-drill) output=$OUTPUT-drill ;; esac
for name in "$STATESHIFT_TAG" $(printf %s "$STATESHIFT_LOCATION" | md5sum | cut -c1-32); do
  echo "queued $DRIVER" > "$JOBS/$name.state"
done
printf '{"tag": "%s", "location": "%s", "brokers": "%s", "topic": "numbers", "output": "%s"}' \
  "$STATESHIFT_TAG" "$STATESHIFT_LOCATION" "$BROKERS" "$output" > "$REQUESTS/$STATESHIFT_TAG.new"
mv "$REQUESTS/$STATESHIFT_TAG.new" "$REQUESTS/$STATESHIFT_TAG.start"
"""
STOP = """
name=$(printf %s "$STATESHIFT_LOCATION" | md5sum | cut -c1-32)
read -r state pid < "$JOBS/$name.state"
requests=$(ls -d "$JOBS"/../drivers/*/ | while read -r folder; do
  [ "$(cat "$folder/ready" 2>/dev/null)" = "$pid" ] && echo "$folder"; done)
printf %s "$STATESHIFT_LOCATION" > "$requests/$name.new"
mv "$requests/$name.new" "$requests/$name.stop"
while read -r state pid < "$JOBS/$name.state" && [ "$state" = running ] && kill -0 "$pid"; do sleep 0.1; done
"""

Totals = dict[str, list[int]]


def totals_of(ends: Mapping[int, int]) -> Totals:
    """Return the totals of all records before these offsets of the partitions."""
    totals: Totals = {}
    for partition, end in ends.items():
        for offset in range(end):
            number = offset * PARTITIONS + partition
            total = totals.setdefault(f"key-{number % KEYS}", [0, 0])
            total[0] += 1
            total[1] += number
    return totals


def feed(brokers: str) -> None:
    """Send all records to brokers that have none."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=brokers)
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=50)
    for number in range(RECORDS):
        key, value = f"key-{number % KEYS}".encode(), str(number).encode()
        producer.send(TOPIC, value, key=key, partition=number % PARTITIONS)
    producer.flush()
    producer.close()


@dataclass
class Driver:
    """A driver that takes queries by files in a folder."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> None:
        """Wait until it can be asked."""
        until(lambda: (self.folder / "ready").exists(), f"no driver: {self.folder}/log")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def until(is_so: Callable[[], object], otherwise: str, seconds_max: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


@dataclass
class Primary:
    """A job that runs in the first region, and its standby in the other."""

    number: int
    folder: Path
    source: str
    target: str
    driver: Driver
    fed: Following

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def storage(self) -> Storage:
        return open_patiently(self.source)

    @property
    def standby(self) -> Storage:
        return open_patiently(self.target)


@dataclass
class Regions:
    """Both regions, and the jobs that have run there."""

    folder: Path
    dice: random.Random
    first: Servers
    second: Servers
    settings: dict[str, str]
    exports: dict[str, str]
    spare: list[Driver] = field(default_factory=list)
    engine: Driver | None = None
    jobs: int = 0
    drivers: int = 0

    # ---- drivers

    def start_driver(self, cores: int = 1) -> Driver:
        self.drivers += 1
        folder = self.folder / "drivers" / str(self.drivers)
        folder.mkdir(parents=True)
        (self.folder / "jobs").mkdir(exist_ok=True)
        settings = {**self.settings, "spark.master": f"local[{cores}]"}
        words = [str(folder), str(self.folder / "jobs"), json.dumps(settings)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(SERVER), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**environment(), **self.exports},
            )
        return Driver(folder, process)

    def next_driver(self) -> Driver:
        """Return a driver for the primary."""
        driver = self.spare.pop() if self.spare else self.start_driver()
        driver.wait()
        return driver

    def end(self) -> None:
        for driver in (*self.spare, *filter(None, [self.engine])):
            driver.kill()

    def cluster(self, driver: Driver, brokers: str, output: Path) -> dict[str, Any]:
        variables = {
            "JOBS": str(self.folder / "jobs"),
            "REQUESTS": str(driver.folder),
            "DRIVER": str(driver.pid),
            "BROKERS": brokers,
            "OUTPUT": str(output),
        }
        verbs = {}
        for verb, script in (("find", FIND), ("submit", SUBMIT), ("stop", STOP)):
            file = self.folder / f"{verb}.sh"
            file.write_text(script)
            verbs[verb] = f"bash {file}"
        return {"kind": "command", "environment": variables, **verbs}

    def ask(self, driver: Driver, location: str, output: Path, tag: str) -> None:
        """Start a query without stateshift. Spark stops one of the same id in the same driver."""
        brokers = self.first.exports()["STATESHIFT_KAFKA"]
        request = {"tag": tag, "location": location, "brokers": brokers, "topic": TOPIC}
        request["output"] = str(output)
        (driver.folder / f"{tag}.new").write_text(json.dumps(request))
        (driver.folder / f"{tag}.new").rename(driver.folder / f"{tag}.start")

    def state_of(self, name: str) -> str:
        path = self.folder / "jobs" / f"{name}.state"
        return path.read_text().split()[0] if path.exists() else "absent"

    # ---- a primary and its standby

    @contextmanager
    def primary(self) -> Iterator[Primary]:
        """A job that runs, and whose standby has its first image."""
        self.jobs += 1
        folder = self.folder / f"job-{self.jobs}"
        folder.mkdir()
        source = f"s3a://{s3.BUCKET}/{self.folder.name}/job-{self.jobs}/orders"
        target = f"file://{folder}/standby/orders"
        driver = self.next_driver()
        assert self.engine is not None
        brokers = self.first.exports()["STATESHIFT_KAFKA"]
        mirror = self.second.exports()["STATESHIFT_KAFKA"]
        output = folder / "output"
        job = {
            "name": "orders",
            "checkpoint_location": source,
            "remote_location": target,
            "mode": "warm",
            "cutover": "never",
            "source_cluster": "first",
            "target_cluster": "second",
            "submit": {"command": "second"},
            "source_submit": {"command": "first"},
            "drill": {"submit": {"command": "drill"}},
        }
        clusters = {
            "first": self.cluster(self.engine, brokers, output),
            "second": self.cluster(self.engine, mirror, output),
        }
        spec = {
            "version": 1,
            "engine": "spark",
            "clusters": clusters,
            "kafka": {"bootstrap_servers": mirror},
            "jobs": [job],
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        self.ask(driver, source, output, f"begun-{self.jobs}")
        until(lambda: commits(open_patiently(source)), f"it commits nothing: {driver.folder}")
        with following(
            folder, folder / "spec.json", folder / "standby" / "orders", self.exports
        ) as fed:
            try:
                fed.says("can be started from")
                yield Primary(self.jobs, folder, source, target, driver, fed)
            finally:
                for location in (source, target, f"{target}-drill"):
                    self.stop_query(self.engine, location)
                if driver.process.poll() is None:
                    self.stop_query(driver, source)
                    self.spare.append(driver)
                shutil.rmtree(folder / "standby", ignore_errors=True)

    def stop_query(self, driver: Driver, location: str) -> None:
        hidden, stop = driver.folder / "end.new", driver.folder / "end.stop"
        hidden.write_text(location)
        hidden.rename(stop)
        until(lambda: not stop.exists(), f"the driver is gone: {driver.folder}")

    # ---- what is killed

    def kill(self, primary: Primary) -> tuple[str, ...]:
        """Kill some of the first region's processes, one after the other. Return their names."""
        chances = {"driver": 0.5, "storage": 0.7, "brokers": 0.15}
        doomed = [name for name, chance in chances.items() if self.dice.random() < chance]
        doomed = doomed or ["driver"]
        self.dice.shuffle(doomed)
        for name in doomed:
            time.sleep(self.dice.choice([0.0, self.dice.uniform(0.0, 1.0)]))
            match name:
                case "driver":
                    primary.driver.kill()
                    self.spare.append(self.start_driver())  # the next one starts meanwhile
                case "storage":
                    self.first.kill("s3-real", "weed")
                case _:
                    self.first.kill("kafka", "broker")
        return tuple(doomed)

    def bring_back(self) -> None:
        """Start what was killed again, with its data."""
        for name in ("s3-real", "kafka"):
            self.first.up(name)

    # ---- what is asked

    def killed(self, *words: str, seconds: float) -> int:
        """Run the command line, and kill it after a while. Return its exit code."""
        with (self.folder / "killed.log").open("ab") as log:
            run = subprocess.Popen(
                [sys.executable, "-m", "stateshift", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), **self.exports},
            )
        try:
            return run.wait(seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            return run.wait()

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            env={**environment(), **self.exports},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )

    def finished(self, command: str, place: str, workdir: Path, *words: str) -> Any:
        """Run a command to its end; sometimes it is killed on the way, and resumed. Return its
        document.
        """
        whole = [command, place, *words, "--yes", "--workdir", str(workdir)]
        for _ in range(self.dice.choice([0, 1, 1, 2])):
            again = ["resume", str(workdir)]
            begun = (workdir / "journal").exists()
            code = self.killed(*(again if begun else whole), seconds=self.dice.uniform(0.3, 6.0))
            if code == 0:
                break
            assert code == -signal.SIGKILL, (self.folder / "killed.log").read_text()[-3000:]
        words_now = ["resume", str(workdir)] if (workdir / "journal").exists() else whole
        done = self.asked(*words_now, "--json")
        assert done.returncode == 0, f"{words_now}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
        return json.loads(done.stdout)


def commits(storage: Storage) -> dict[int, float]:
    """Return when each batch was committed there."""
    found = {}
    for file in storage.list("commits"):
        name = file.path.rpartition("/")[2]
        with suppress(MissingFile):  # it is just getting its name
            if name.isdecimal() and fence_owner(storage.read(file.path)) is None:
                found[int(name)] = file.modified
    return found


def ends_of(storage: Storage, batch: int) -> dict[int, int]:
    """Return the offsets that a batch has read up to."""
    line = storage.read(f"offsets/{batch}").decode().splitlines()[-1]
    return {int(number): end for number, end in json.loads(line)[TOPIC].items()}


def wrong_outputs(storage: Storage, output: Path) -> list[str]:
    """Return the batches whose output is not that of an undisturbed job with the same offsets."""
    wrong = []
    for batch in commits(storage):
        path = output / f"{batch}.json"
        with suppress(FileNotFoundError):
            if json.loads(path.read_text()) != totals_of(ends_of(storage, batch)):
                wrong.append(f"{path}: {path.read_text()}")
            continue
        wrong.append(f"{path} is missing")
    return wrong


@contextmanager
def regions(folder: Path, dice: random.Random) -> Iterator[Regions]:
    """Both regions up, with their records; down afterwards."""
    jars = downloads.jars("kafka-spark-4.3"), downloads.jars("s3a-spark-4.3")
    with (
        group(folder / "first", "s3-real", "kafka") as first,
        group(folder / "second", "kafka") as second,
        s3.exported(first, s3.REAL) as exports,
    ):
        for servers in (first, second):
            feed(servers.exports()["STATESHIFT_KAFKA"])
        exports = {**exports, "PYTHONPATH": str(ROOT)}
        both = Regions(folder, dice, first, second, settings_of(exports, jars), exports)
        both.engine = both.start_driver(cores=2)
        try:
            both.engine.wait()
            yield both
        finally:
            both.end()


def settings_of(exports: Mapping[str, str], folders: tuple[Path, ...]) -> dict[str, str]:
    """Return what a driver needs to reach S3 and Kafka."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": spark.class_path(spark.installed_home(), *folders),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **s3_settings(exports),
        "spark.hadoop.fs.s3a.attempts.maximum": "3",
        "spark.hadoop.fs.s3a.retry.limit": "2",
    }
