"""A Flink in a JVM beside this process, through Py4J. It plans files for a check, and computes the
hash codes of keys whose `hashCode` is a job's own code.

    distribution(home)           the folder of a distribution, and its class path
    launch(jars, scratch)        a gateway to a JVM with these classes
    hashing(jars, home)          a function that restores a key's serializer of its snapshot, and
                                 returns the function that hashes keys by it

Keys go over in batches. No code of ours runs in the JVM: method handles put together what is done
with each key, `serializer.deserialize(new DataInputDeserializer(bytes)).hashCode()`. This runs the
code of the job, and of whatever class a snapshot names: it is done only where a user named jars.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any as Java  # an object of the JVM, as Py4J shows it

from stateshift.errors import PlanError, SpecError

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
BYTES_AT_ONCE = 4 * 1024 * 1024
# Classes whose `hashCode` is another in every JVM.
OF_IDENTITY = ("java.lang.Object", "java.lang.Enum")
TEXT_MAX = 2_000


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
    jars: Iterable[str], options: Iterable[str] = (), output: Mapping[str, Java] | None = None
) -> Java:
    """Start a JVM with these classes; return its gateway. It ends with this process."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPEN]
    opened.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
    java = os.environ.get("JAVA_HOME")
    port, token = launch_gateway(
        classpath=os.pathsep.join(jars),
        javaopts=[f"-Xmx{HEAP}", *options, *opened],
        java_path=os.path.join(java, "bin", "java") if java else "java",
        die_on_exit=True,
        enable_auth=True,
        **(output or {}),
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    return JavaGateway(gateway_parameters=parameters)


def causes(text: str) -> str:
    """Return the first line of a text of Java's, and its last causes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("Caused by: ")]
    first = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), None)
    parts = [first or "".join(lines[:1]), *told[-2:]]
    return "; ".join(parts)[:TEXT_MAX]


# ---- hash codes of keys


def hashing(jars: tuple[str, ...], home: str | None) -> Hashing:
    """Return the function from a key serializer's snapshot to one that hashes its keys.

    Raises:
        SpecError: a jar is not there, or no distribution of Flink.
    """
    for jar in jars:
        if not os.path.isfile(jar):
            raise SpecError.of("--classes", f"there is no file {jar} on this machine", jar)
    path = (*distribution(home)[1], *jars)

    @cache
    def hash_by(snapshot: bytes) -> HashKeys:
        return _KeyHasher(gateway_of(path), snapshot)

    return hash_by


@lru_cache(maxsize=4)
def gateway_of(jars: tuple[str, ...]) -> Java:
    """Return the gateway to the JVM of these jars: there is one in a process."""
    try:
        return launch(jars)
    except ModuleNotFoundError as error:
        raise PlanError(
            "this environment has no Py4J, through which keys are hashed", hint="pip install py4j"
        ) from error
    except (OSError, ValueError) as error:
        raise PlanError(f"no JVM could be started to hash keys: {error}") from error


class _KeyHasher:
    """The hash codes of one serializer's keys, by the classes of its JVM."""

    def __init__(self, gateway: Java, snapshot: bytes) -> None:
        self._gateway, java = gateway, gateway.jvm.java
        flink = gateway.jvm.org.apache.flink
        self._input = flink.core.memory.DataInputDeserializer
        loader = java.lang.ClassLoader.getSystemClassLoader()
        typeutils = flink.api.common.typeutils
        with _refusing("restore their serializer"):
            told = typeutils.TypeSerializerSnapshot.readVersionedSnapshot(
                self._input(snapshot), loader
            )
            self._serializer = told.restoreSerializer()
        array = typeutils.base.array.BytePrimitiveArraySerializer.INSTANCE
        generic = typeutils.base.GenericArraySerializer
        self._batches = generic(java.lang.Class.forName("[B"), array)
        self._hash = self._hash_function()
        self._is_checked = False

    def __call__(self, content: Content, starts: Ints, ends: Ints) -> Java:
        """Return the hash codes of the keys with which these bytes begin."""
        import numpy as np

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
        java = self._gateway.jvm.java
        with _refusing("read them"):
            if not self._is_checked:
                self._refuse_identity(self._serializer.deserialize(self._input(keys[0])))
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

    def _hash_function(self) -> Java:
        """Return a method handle from a key's bytes to its hash code."""
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
        key = self._handles.filterReturnValue(opened, read.bindTo(self._serializer))
        return self._handles.filterReturnValue(key, hashed)

    def _refuse_identity(self, key: Java) -> None:
        nothing = self._gateway.new_array(self._gateway.jvm.Class, 0)
        kind = self._gateway.jvm.java.util.Objects.requireNonNull(key).getClass()
        owner = str(kind.getMethod("hashCode", nothing).getDeclaringClass().getName())
        if owner in OF_IDENTITY:
            raise PlanError(
                f"keys of class {kind.getName()} have no hashCode of their own: that of {owner} is "
                "another in every JVM",
                hint="Flink takes no such keys: --classes names the jars of the job that wrote it",
            )

    def _class(self, name: str) -> Java:
        return self._gateway.jvm.java.lang.Class.forName(name)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn what a JVM refuses about keys into an error with Java's causes."""
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as error:
        raise PlanError(
            f"the classes that hash the keys cannot {what}: {causes(str(error))}",
            hint="--classes names the job's own jars, as the job that wrote the state had them",
        ) from error
