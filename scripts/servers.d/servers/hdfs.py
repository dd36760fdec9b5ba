"""HDFS: one NameNode and one DataNode, or two NameNodes that share their edits through a
JournalNode.

Each is a name service, so that `hdfs://hdfs-a/…` means the same to every client, and a fail-over is
nothing to it. Fail-over is by hand: `hdfs haadmin -ns hdfs-b -failover nn1 nn2`. Who runs the
servers is the superuser.
"""

from __future__ import annotations

import getpass
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from servers import asking, downloads, hadoop
from servers.faults import Failed
from servers.place import NO, Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

PROXIES = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
HEAPS_MIB = {"namenode": 256, "datanode": 256, "journalnode": 128}
SETTLED_SECONDS_MAX = 180.0
# The pages of their web interfaces are in Hadoop's tarball alone; without the folders the servers
# do not start.
PAGES = ("hdfs", "datanode", "journal", "static")


@dataclass(frozen=True)
class Hdfs(Server):
    name: str
    namenodes: tuple[str, ...]

    @property
    def shares_edits(self) -> bool:
        return len(self.namenodes) > 1

    @property
    def ports(self) -> tuple[str, ...]:
        own = [f"{node}-{kind}" for node in self.namenodes for kind in ("rpc", "http")]
        journal = ["journal-rpc", "journal-http"] if self.shares_edits else []
        return (*own, *journal, "data", "data-http", "data-ipc")

    def fetch(self) -> None:
        downloads.java()
        downloads.jars("hdfs")

    def configure(self, place: Place) -> None:
        user = getpass.getuser()
        core = {
            "fs.defaultFS": f"hdfs://{self.name}",
            "hadoop.tmp.dir": str(place.folder / "data" / "tmp"),
            f"hadoop.proxyuser.{user}.hosts": "*",
            f"hadoop.proxyuser.{user}.groups": "*",
        }
        for part in PAGES:
            (place.folder / "conf" / "webapps" / part).mkdir(parents=True, exist_ok=True)
        hadoop.write_site(place.folder / "conf", core, {**self.hdfs(place), **self._nodes(place)})

    def stages(self, place: Place) -> tuple[Stage, ...]:
        nodes = (*(self._namenode(place, node) for node in self.namenodes), self._datanode(place))
        journal = (Stage((self._journalnode(place),)),) if self.shares_edits else ()
        return (*journal, Stage(nodes, before=partial(self._format, place)))

    def settle(self, place: Place) -> None:
        """One NameNode is active, none in safe mode, and each knows the DataNode."""
        if self.shares_edits and not self.active(place):
            hadoop.run(
                place.folder / "conf",
                "haadmin",
                "-ns",
                self.name,
                "-transitionToActive",
                self.namenodes[0],
            )
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while not self._settled(place):
            if time.monotonic() > until:
                raise Failed(
                    f"{self.name}: after {SETTLED_SECONDS_MAX:.0f} seconds still in safe "
                    "mode or without its "
                    f"DataNode; the end of its log:\n{place.end_of_log('datanode')}"
                )
            time.sleep(0.2)

    def active(self, place: Place) -> str | None:
        """The NameNode that is."""
        for node in self.namenodes:
            if place.alive(node) and _state(place.ports[f"{node}-http"]) == "active":
                return node
        return None

    def exports(self, place: Place) -> dict[str, str]:
        prefix = "STATESHIFT_" + self.name.replace("-", "_").upper()
        ports = place.ports
        return {
            prefix: f"hdfs://{self.name}",
            f"{prefix}_WEB": ";".join(
                f"http://{HOST}:{ports[f'{node}-http']}" for node in self.namenodes
            ),
            f"{prefix}_RPC": ";".join(f"{HOST}:{ports[f'{node}-rpc']}" for node in self.namenodes),
        }

    def hdfs(self, place: Place) -> dict[str, str]:
        name, ports = self.name, place.ports
        nodes = {
            f"dfs.namenode.{kind}-address.{name}.{node}": f"{HOST}:{ports[f'{node}-{kind}']}"
            for node in self.namenodes
            for kind in ("rpc", "http")
        }
        return {
            "dfs.nameservices": name,
            f"dfs.ha.namenodes.{name}": ",".join(self.namenodes),
            f"dfs.client.failover.proxy.provider.{name}": PROXIES,
            **nodes,
            "dfs.replication": "1",
            "dfs.ha.fencing.methods": "shell(true)",
            "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
            # On two cores a DataNode's report of a block comes after its client's first question,
            # and Hadoop then waits for 400 ms by default, in WebHDFS as well: nothing here, the
            # alternatives of a bench included, should.
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
        }

    def _nodes(self, place: Place) -> dict[str, str]:
        """What the servers need beside it. Small blocks are allowed: tests want files of
        several.
        """
        ports, data = place.ports, place.folder / "data"
        return {
            "dfs.namenode.name.dir": str(data / "${dfs.ha.namenode.id}"),
            "dfs.datanode.data.dir": str(data / "blocks"),
            "dfs.datanode.address": f"{HOST}:{ports['data']}",
            "dfs.datanode.http.address": f"{HOST}:{ports['data-http']}",
            "dfs.datanode.ipc.address": f"{HOST}:{ports['data-ipc']}",
            "dfs.datanode.hostname": HOST,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.fs-limits.min-block-size": "4096",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.delegation.token.always-use": "true",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "2000",
            "dfs.namenode.handler.count": "4",
            "dfs.datanode.handler.count": "4",
            "dfs.ha.tail-edits.period": "1s",
            "dfs.ha.log-roll.period": "5s",
            **(self._sharing(place) if self.shares_edits else {}),
        }

    def _sharing(self, place: Place) -> dict[str, str]:
        rpc, http = place.ports["journal-rpc"], place.ports["journal-http"]
        return {
            "dfs.namenode.shared.edits.dir": f"qjournal://{HOST}:{rpc}/{self.name}",
            "dfs.journalnode.edits.dir": str(place.folder / "data" / "journal"),
            "dfs.journalnode.rpc-address": f"{HOST}:{rpc}",
            "dfs.journalnode.http-address": f"{HOST}:{http}",
        }

    def _namenode(self, place: Place, node: str) -> Role:
        port = place.ports[f"{node}-http"]
        return self._role(place, node, "namenode", lambda: _serves(port), *_named(node))

    def _datanode(self, place: Place) -> Role:
        port = place.ports["data-http"]
        return self._role(place, "datanode", "datanode", lambda: _registered(port))

    def _journalnode(self, place: Place) -> Role:
        url = f"http://{HOST}:{place.ports['journal-http']}/jmx"
        return self._role(place, "journalnode", "journalnode", lambda: asking.status(url) == 200)

    def _role(
        self, place: Place, name: str, kind: str, answers: Callable[[], bool], *arguments: str
    ) -> Role:
        command = hadoop.command(kind, place, HEAPS_MIB[kind], *arguments)
        return Role(name, command, answers, {"HADOOP_CONF_DIR": str(place.folder / "conf")})

    def _format(self, place: Place) -> None:
        """The first NameNode's folder is made by itself, the others' are copies of it, as
        Hadoop's manual has it.
        """
        data = place.folder / "data"
        first, *others = (data / node for node in self.namenodes)
        if not (data / "formatted").exists():
            arguments = ("-format", "-force", "-nonInteractive", "-clusterId", place.name)
            words = hadoop.command("namenode", place, 128, *_named(self.namenodes[0]), *arguments)
            hadoop.finish(words, place.log("format"))
            for other in others:  # what -bootstrapStandby does
                shutil.copytree(first, other, dirs_exist_ok=True)
            (data / "formatted").touch()

    def _settled(self, place: Place) -> bool:
        try:
            return all(_in_service(place.ports[f"{node}-http"]) for node in self.namenodes)
        except NO:
            return False


def _named(node: str) -> tuple[str, str]:
    return "-D", f"dfs.ha.namenode.id={node}"


def _state(port: int) -> str:
    try:
        return str(asking.bean(port, "service=NameNode,name=NameNodeStatus")["State"])
    except NO:
        return "silent"


def _serves(port: int) -> bool:
    """The web interface knows its state, and WebHDFS answers: a standby that it is one."""
    known = _state(port) in ("active", "standby")
    return known and asking.status(f"http://{HOST}:{port}/webhdfs/v1/?op=GETFILESTATUS") in (
        200,
        403,
    )


def _in_service(port: int) -> bool:
    info = asking.bean(port, "service=NameNode,name=NameNodeInfo")
    return info["Safemode"] == "" and len(json.loads(info["LiveNodes"])) > 0


def _registered(port: int) -> bool:
    """With a NameNode at least: the others may be gone for a while."""
    actors = json.loads(
        asking.bean(port, "service=DataNode,name=DataNodeInfo")["BPServiceActorInfo"]
    )
    return any(actor["ActorState"] == "RUNNING" for actor in actors)
