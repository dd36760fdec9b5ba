"""Hadoop's programs and configuration: how a class of it is run, and what its clients must know.

command("namenode", place, 256)    the words that start a server's process
run(conf, "haadmin", ...)          runs a command, and returns what it says
fail_over(conf, "hdfs-b")          makes the other NameNode the active one
write_clients(root, {"hdfs-a": {...}})    hadoop-conf/ and bin/ for all HDFS that are up
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from servers import downloads
from servers.faults import Failed
from servers.place import Place

SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
OPEN = (
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # WebHDFS answers 500 without it, from Java 16 on
PROCESSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "journalnode": "org.apache.hadoop.hdfs.qjournal.server.JournalNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
    "rmadmin": "org.apache.hadoop.yarn.client.cli.RMAdminCLI",
}
HDFS = {
    "dfs": "org.apache.hadoop.fs.FsShell",
    "haadmin": "org.apache.hadoop.hdfs.tools.DFSHAAdmin",
    "dfsadmin": "org.apache.hadoop.hdfs.tools.DFSAdmin",
    "fsck": "org.apache.hadoop.hdfs.tools.DFSck",
    "getconf": "org.apache.hadoop.hdfs.tools.GetConf",
}
HADOOP = {"fs": "org.apache.hadoop.fs.FsShell", "distcp": "org.apache.hadoop.tools.DistCp"}
LOG4J = """log4j.rootLogger={level}, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{{ISO8601}} %p %c{{2}}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""
HDFSCLI = """[global]
default.alias = {default}
"""
SECONDS_MAX = 240.0


def command(
    name: str, place: Place, heap_mib: int, *arguments: str, jars: str = "hdfs"
) -> tuple[str, ...]:
    path = _class_path(place.folder / "conf", jars)
    words = (*OPEN, "-cp", path, PROCESSES[name], *arguments)
    return (*java(place, heap_mib), *words)


def java(place: Place, heap_mib: int) -> tuple[str, ...]:
    """A small JVM whose temporary files go with the place."""
    return (downloads.java(), f"-Xmx{heap_mib}m", *SMALL, f"-Djava.io.tmpdir={place.temporary}")


def run(conf: Path, name: str, *arguments: str) -> str:
    """One of HDFS's commands, carried out."""
    words = [
        downloads.java(),
        "-Xmx128m",
        *SMALL,
        "-cp",
        _class_path(conf),
        {**HADOOP, **HDFS}[name],
        *arguments,
    ]
    done = subprocess.run(
        words,
        env={**os.environ, "HADOOP_CONF_DIR": str(conf)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    if done.returncode:
        raise Failed(
            f"hdfs {name} {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return done.stdout


def fail_over(conf: Path, service: str) -> None:
    """From whichever of its two NameNodes is active to the other."""
    active = run(conf, "haadmin", "-ns", service, "-getServiceState", "nn1").strip() == "active"
    run(
        conf,
        "haadmin",
        "-ns",
        service,
        "-failover",
        *(("nn1", "nn2") if active else ("nn2", "nn1")),
    )


def finish(command: Sequence[str], log: Path) -> None:
    """A command that belongs to a server's making."""
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            timeout=SECONDS_MAX,
        )
    if done.returncode:
        raise Failed(
            f"{command[-1]} ended with {done.returncode}: {log.read_text(errors='replace')[-2500:]}"
        )


def write_site(
    folder: Path, core: Mapping[str, str], hdfs: Mapping[str, str], level: str = "INFO"
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, properties in (("core-site.xml", core), ("hdfs-site.xml", hdfs)):
        write_properties(folder / name, properties)
    _write(folder / "log4j.properties", LOG4J.format(level=level))


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    """A file of Hadoop's configuration."""
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    words = ['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""]
    _write(file, "\n".join(words))


def write_clients(root: Path, named: Mapping[str, Mapping[str, str] | None]) -> None:
    """The clients' configuration names all of them; the first is where paths without a name
    lead.
    """
    sites = {name: site for name, site in named.items() if site is not None}
    conf = root / "hadoop-conf"
    core = (
        {"fs.defaultFS": f"hdfs://{next(iter(sites))}", "hadoop.tmp.dir": str(conf / "tmp")}
        if sites
        else {}
    )
    merged = {key: value for site in sites.values() for key, value in site.items()}
    write_site(conf, core, {**merged, "dfs.nameservices": ",".join(sites)} if sites else {}, "WARN")
    if sites:
        _write(root / "hdfscli.cfg", _aliases(sites))
        for name, classes in (("hdfs", HDFS), ("hadoop", HADOOP)):
            _write(root / "bin" / name, _script(conf, classes), 0o755)


def remove_clients(root: Path) -> None:
    for name in ("hadoop-conf", "bin"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "hdfscli.cfg").unlink(missing_ok=True)


def exports(root: Path) -> dict[str, str]:
    return {
        "HADOOP_CONF_DIR": str(root / "hadoop-conf"),
        "HDFSCLI_CONFIG": str(root / "hdfscli.cfg"),
        "STATESHIFT_HDFS_COMMANDS": str(root / "bin"),
    }


def _aliases(sites: Mapping[str, Mapping[str, str]]) -> str:
    """For the `hdfs` package: an alias of each one's name and `-web`, with all its NameNodes."""
    parts = [HDFSCLI.format(default=f"{next(iter(sites))}-web")]
    for name, site in sites.items():
        key = f"dfs.namenode.http-address.{name}."
        urls = [f"http://{site[one]}" for one in site if one.startswith(key)]
        parts.append(f"[{name}-web.alias]\nurl = {';'.join(urls)}\n")
    return "\n".join(parts)


def _script(conf: Path, classes: Mapping[str, str]) -> str:
    cases = "\n".join(f"  {name}) class={java} ;;" for name, java in classes.items())
    words = " ".join([f'"{downloads.java()}"', "-Xmx384m", *SMALL, "-cp", f'"{_class_path(conf)}"'])
    return (
        "#!/bin/sh\n# Written by scripts/servers, for the servers that are up.\n"
        f'case "${{1:-}}" in\n{cases}\n  *) echo "one of: {" ".join(classes)}" >&2; exit 2 '
        ";;\nesac\nshift\n"
        f'export HADOOP_CONF_DIR="{conf}"\nexec {words} "$class" "$@"\n'
    )


def _class_path(conf: Path, jars: str = "hdfs") -> str:
    return f"{conf}:{downloads.jars(jars)}/*"


def _write(file: Path, text: str, mode: int = 0o644) -> None:
    """Whole or not at all: somebody may be reading it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(file)
