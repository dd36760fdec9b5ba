"""A Flink in a JVM beside this process, through Py4J. It plans files for a check, and computes the
hash codes of keys whose `hashCode` is a job's own code.

    distribution(home)           the folder of a distribution, and its class path
    launch(jars, scratch)        a gateway to a JVM with these classes
    digests_of(jars)             the SHA-256 of each, by its path on this machine
    hashing(digests, home)       a function that restores a key's serializer of its snapshot, and
                                 returns the function that hashes keys by it

Keys go over in batches. No code of ours runs in the JVM: method handles put together what is done
with each key, `serializer.deserialize(new DataInputDeserializer(bytes)).hashCode()`. This runs the
code of the job, and of whatever class a snapshot names: it is done only where a user named jars,
and only while these have the bytes that the plan was made from.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from typing import Any as Java  # an object of the JVM, as Py4J shows it

from stateshift.errors import ClusterError, PlanError, SpecError
from stateshift.storage import locations

if TYPE_CHECKING:
    from stateshift.engines.flink.rewrite.keyed_files import Hashing, HashKeys
    from stateshift.formats.blocks import Ints
    from stateshift.formats.spans import Content

HOME = "FLINK_HOME"
HEAP = "1g"
# The distribution's own configuration opens these for Java 17.
OPEN = (
    *("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent"),
    *("util.concurrent.atomic", "util.concurrent.locks"),
)
KEYS_AT_ONCE = 1 << 15
CALL_SECONDS_MAX = 300.0  # for so many keys: they take a third of a second
BYTES_AT_ONCE = 4 * 1024 * 1024
KEY_BYTES_MAX = 64 * 1024 * 1024  # what the heap has room for, as Py4J sends it
# Classes whose `hashCode` is another in every JVM.
OF_IDENTITY = ("java.lang.Object", "java.lang.Enum")
TEXT_MAX = 2_000
_DROP = 'leave their operator behind: {"kind": "drop", "operators": [...]}'


def distribution(home: str | None) -> tuple[str, list[str]]:
    """Return the folder of a distribution of Flink, that of $FLINK_HOME where none is named, and
    its class path.
    """
    home = home or os.environ.get(HOME)
    if home is None:
        raise SpecError.of(
            "--flink", "where is Flink? Name the folder of a distribution", f"${HOME} is not set"
        )
    jars = sorted(map(str, (*Path(home).glob("*.jar"), *Path(home, "lib").glob("*.jar"))))
    if not any(Path(jar).name.startswith("flink-dist") for jar in jars):
        raise SpecError.of("--flink", f"{home} has no flink-dist jar in lib", home)
    return home, jars


def launch(
    jars: Iterable[str],
    options: Iterable[str] = (),
    output: Mapping[str, Java] | None = None,
    seconds_max: float | None = None,
) -> Java:
    """Start a JVM with these classes; return its gateway. It ends with this process. `output`: what
    else `launch_gateway` takes; a call that has no answer in `seconds_max` fails.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs is raised as well
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPEN]
    opened.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
    java = os.environ.get("JAVA_HOME")
    port, token, process = launch_gateway(
        classpath=os.pathsep.join(jars),
        javaopts=[f"-Xmx{HEAP}", *options, *opened],
        java_path=os.path.join(java, "bin", "java") if java else "java",
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        **(output or {}),
    )
    parameters = GatewayParameters(
        port=port, auth_token=token, auto_convert=True, read_timeout=seconds_max
    )
    gateway = JavaGateway(gateway_parameters=parameters)
    gateway.java_process = process
    return gateway


def causes(text: str) -> str:
    """Return the first line of a text of Java's, and its last causes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("Caused by: ")]
    first = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), None)
    parts = [first or "".join(lines[:1]), *told[-2:]]
    return "; ".join(parts)[:TEXT_MAX]


# ---- hash codes of keys


def digests_of(jars: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each jar, by its path.

    Raises:
        SpecError: it is not there, or not on this machine.
    """
    digests: dict[str, str] = {}
    for jar in jars:
        path = locations.local_path(jar)
        if path is None:
            raise SpecError.of("--classes", f"{jar} is no file of this machine: download it", jar)
        if not os.path.isfile(path):
            raise SpecError.of("--classes", f"there is no file {path} on this machine", jar)
        with open(path, "rb") as file:
            digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def hashing(digests: Mapping[str, str], home: str | None) -> Hashing:
    """Return the function from a key serializer's snapshot to one that hashes its keys, by the
    classes of the jars of these digests.

    Raises:
        SpecError: a jar is not there, or no distribution of Flink.
        PlanError: a jar has other bytes.
    """
    for jar, digest in digests_of(digests).items():
        if digest != digests[jar]:
            raise PlanError(
                f"{jar} is not the jar that the plan was made with: its SHA-256 is {digest}, and "
                f"was {digests[jar]}",
                hint="put that jar back; or make another plan with the new one",
            )
    folder = None if home is None else locations.local_path(home)
    if home is not None and folder is None:
        raise SpecError.of("--flink", f"{home} is no folder of this machine", home)
    path = (*distribution(folder)[1], *digests)

    @cache
    def hash_by(snapshot: bytes) -> HashKeys:
        with _STARTING:
            gateway = gateway_of(path, tuple(digests.values()))
        return _KeyHasher(gateway, snapshot)

    return hash_by


_STARTING = Lock()


@lru_cache(maxsize=4)
def gateway_of(jars: tuple[str, ...], digests: tuple[str, ...]) -> Java:
    """Return the gateway to the JVM of these jars, with the classes of these digests: there is one
    in a process.
    """
    from tempfile import TemporaryFile

    with TemporaryFile("w+", errors="replace") as said:
        try:
            # Ctrl-C in a terminal is for this process, which lets the current write finish.
            output = {"redirect_stderr": said, "create_new_process_group": True}
            return launch(jars, (), output, CALL_SECONDS_MAX)
        except ModuleNotFoundError as error:
            raise PlanError(
                "this environment has no Py4J, through which keys are hashed",
                hint="pip install py4j",
            ) from error
        except (OSError, ValueError) as error:
            said.seek(0)
            why = " ".join(said.read(TEXT_MAX).split()) or str(error)
            raise ClusterError(
                f"no JVM could be started to hash keys: {why}",
                hint="$JAVA_HOME, or else the path, has to have a Java that Flink runs in, and "
                f"{HEAP} of memory be free for it",
            ) from error


class _KeyHasher:
    """The hash codes of one serializer's keys, by the classes of its JVM."""

    def __init__(self, gateway: Java, snapshot: bytes) -> None:
        self._gateway, self._is_checked = gateway, False
        with _refusing(gateway, "restore their serializer"):
            java, flink = gateway.jvm.java, gateway.jvm.org.apache.flink
            self._input = flink.core.memory.DataInputDeserializer
            loader = java.lang.ClassLoader.getSystemClassLoader()
            typeutils = flink.api.common.typeutils
            told = typeutils.TypeSerializerSnapshot.readVersionedSnapshot(
                self._input(snapshot), loader
            )
            self._serializer = told.restoreSerializer()
            array = typeutils.base.array.BytePrimitiveArraySerializer.INSTANCE
            generic = typeutils.base.GenericArraySerializer
            self._batches = generic(java.lang.Class.forName("[B"), array)
            self._hash, self._class_of = self._functions()

    def __call__(self, content: Content, starts: Ints, ends: Ints) -> Java:
        """Return the hash codes of the keys with which these bytes begin."""
        import numpy as np

        if (ends - starts > KEY_BYTES_MAX).any():
            raise PlanError(f"a key may have more than {KEY_BYTES_MAX:,} bytes", hint=_DROP)
        codes = np.empty(len(starts), np.uint32)
        edges = np.cumsum(ends - starts)
        at = 0
        while at < len(starts):
            begin = int(edges[at - 1]) if at else 0
            to = int(np.searchsorted(edges, begin + BYTES_AT_ONCE, "right"))
            to = min(max(to, at + 1), at + KEYS_AT_ONCE)
            keys = [
                content[start:end].tobytes()
                for start, end in zip(starts[at:to].tolist(), ends[at:to].tolist(), strict=True)
            ]
            codes[at:to] = np.frombuffer(self._hashed(keys), ">u4")
            at = to
        return codes

    def _hashed(self, keys: list[bytes]) -> bytes:
        parts = [len(keys).to_bytes(4, "big")]
        for key in keys:
            parts += (b"\x01", len(key).to_bytes(4, "big"), key)
        with _refusing(self._gateway, "read them"):
            java = self._gateway.jvm.java
            if not self._is_checked:
                # Py4J would turn a key that is a text or a number into one of Python.
                kind = self._class_of.invokeWithArguments([keys[0]])
                nothing = self._gateway.new_array(self._gateway.jvm.Class, 0)
                owner = str(kind.getMethod("hashCode", nothing).getDeclaringClass().getName())
                if owner in OF_IDENTITY:
                    fact = f"keys of class {kind.getName()} have no hashCode of their own: that of "
                    fact += f"{owner} is another in every JVM"
                    hint = "--classes names the jars of the job that wrote it, where they have one"
                    raise PlanError(fact, hint=f"{hint}; or {_DROP}")
                self._is_checked = True
            batch = self._batches.deserialize(self._input(b"".join(parts)))
            codes = self._gateway.new_array(self._gateway.jvm.int, len(keys))
            of_batch = self._handles.arrayElementGetter(batch.getClass()).bindTo(batch)
            each = self._handles.filterReturnValue(of_batch, self._hash)
            proxies = java.lang.invoke.MethodHandleProxies
            operator = self._class("java.util.function.IntUnaryOperator")
            java.util.Arrays.setAll(codes, proxies.asInterfaceInstance(operator, each))
            buffer = java.nio.ByteBuffer.allocate(4 * len(keys))
            buffer.asIntBuffer().put(codes)
            return bytes(buffer.array())

    def _functions(self) -> tuple[Java, Java]:
        """Return method handles from a key's bytes to its hash code, and to its class."""
        invoke = self._gateway.jvm.java.lang.invoke
        self._handles = invoke.MethodHandles
        lookup, kind = self._handles.publicLookup(), invoke.MethodType.methodType
        bytes_, object_ = self._class("[B"), self._class("java.lang.Object")
        view = self._class("org.apache.flink.core.memory.DataInputView")
        nothing = self._class("java.lang.Void").getField("TYPE").get(None)
        number = self._class("java.lang.Integer").getField("TYPE").get(None)
        serializer = self._class("org.apache.flink.api.common.typeutils.TypeSerializer")
        opened = lookup.findConstructor(
            self._class("org.apache.flink.core.memory.DataInputDeserializer"),
            kind(nothing, bytes_),
        ).asType(kind(view, bytes_))
        read = lookup.findVirtual(serializer, "deserialize", kind(object_, view))
        hashed = lookup.findVirtual(object_, "hashCode", kind(number))
        classed = lookup.findVirtual(object_, "getClass", kind(self._class("java.lang.Class")))
        key = self._handles.filterReturnValue(opened, read.bindTo(self._serializer))
        to_code = self._handles.filterReturnValue(key, hashed)
        return to_code, self._handles.filterReturnValue(key, classed)

    def _class(self, name: str) -> Java:
        return self._gateway.jvm.java.lang.Class.forName(name)


@contextmanager
def _refusing(gateway: Java, what: str) -> Iterator[None]:
    """Turn what a JVM refuses about keys into an error with Java's causes, and its end into one
    after which a run can go on: the next one gets another JVM, as after code that never returns.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    begun = time.monotonic()
    try:
        yield
    except Py4JError as error:
        if not isinstance(error, Py4JJavaError) and time.monotonic() - begun >= CALL_SECONDS_MAX:
            gateway_of.cache_clear()
            gateway.java_process.kill()  # its threads would go on
            raise PlanError(
                f"the classes that hash the keys did not {what} within {CALL_SECONDS_MAX:.0f} s, "
                f"for {KEYS_AT_ONCE:,} keys or less: their code waits for something, or never ends",
                hint="--classes names the job's own jars, whose keys hash themselves without "
                f"anything outside; or {_DROP}",
            ) from error
        if "java.lang.OutOfMemoryError" in str(error):
            raise PlanError(
                f"the keys are too large for the heap of {HEAP} of the JVM that hashes them",
                hint=_DROP,
            ) from error
        try:
            if not isinstance(error, Py4JJavaError):
                gateway.jvm.java.lang.System.nanoTime()
        except Py4JError:
            gateway_of.cache_clear()
            raise ClusterError(
                "the JVM that hashes the keys has ended: somebody ended it, or memory ran out",
                hint=f"see that {HEAP} of memory is free for it, and repeat: a run goes on by "
                "stateshift resume WORKDIR",
            ) from error
        raise PlanError(
            f"the classes that hash the keys cannot {what}: {causes(str(error))}",
            hint="--classes names the job's own jars, as the job that wrote the state had them",
        ) from error
