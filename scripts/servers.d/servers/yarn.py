"""YARN: a ResourceManager, or a pair that shares its state by a folder, and one NodeManager. It
runs containers on this machine, with the local file system as its own; a job's HDFS is named by its
own configuration.

A NodeManager that is stopped ends its containers: what they ran is gone after `down`. Fail-over is
by hand: `fail_over(place)` makes the other ResourceManager the active one.

`secure`: in a Kerberos realm of its own (`kerberos`), which has a user "us".
"""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servers import asking, downloads, hadoop, kerberos
from servers.faults import Failed
from servers.place import NO, Place, Role
from servers.ports import HOST
from servers.server import Server, Stage

HEAPS_MIB = {"resourcemanager": 256, "nodemanager": 256, "rmadmin": 128}
MEMORY_MIB, CORES = 3072, 6
SETTLED_SECONDS_MAX = 120.0
MANAGED = ("rpc", "scheduler", "tracker", "admin", "http")
PREFIX = "yarn.resourcemanager"
WEB = f"HTTP/{HOST}"
PRINCIPALS = ("rm/localhost", "nm/localhost", WEB, "HTTP/localhost", "us")
# Two queues for jobs, and one that takes none.
QUEUES = {"default": (80, "RUNNING"), "small": (10, "RUNNING"), "closed": (10, "STOPPED")}


@dataclass(frozen=True)
class Yarn(Server):
    name: str
    managers: tuple[str, ...]
    apart: bool = False
    secure: bool = False
    built: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        own = [f"{manager}-{kind}" for manager in self.managers for kind in MANAGED]
        own += ["kdc"] if self.secure else []
        return (*own, "node", "node-http", "localizer", "collector")

    def fetch(self) -> None:
        downloads.java()
        downloads.jars("yarn")
        if self.secure:
            kerberos.fetch()

    def configure(self, place: Place) -> None:
        """The configuration of servers and clients. Each server says on its command line who it
        is.
        """
        conf = place.folder / "conf"
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(place.folder / "data" / "tmp")}
        site = {**self._managers(place), **self._node(place)}
        queues = {"yarn.scheduler.capacity.root.queues": ",".join(QUEUES)}
        for queue, (share, state) in QUEUES.items():
            of_queue = f"yarn.scheduler.capacity.root.{queue}"
            queues |= {f"{of_queue}.capacity": str(share), f"{of_queue}.state": state}
            queues[f"{of_queue}.maximum-am-resource-percent"] = "1.0"
        queues["yarn.scheduler.capacity.root.small.maximum-capacity"] = "10"
        if self.secure:
            kerberos.make(place, PRINCIPALS)
            core |= _secure_core(place)
            site |= _secure_site(place)
        hadoop.write_site(conf, core, {})
        hadoop.write_properties(conf / "yarn-site.xml", site)
        hadoop.write_properties(conf / "capacity-scheduler.xml", queues)

    def stages(self, place: Place) -> tuple[Stage, ...]:
        managers = tuple(self._manager(place, manager) for manager in self.managers)
        own = Stage(managers), Stage((self._nodemanager(place),))
        return (Stage((kerberos.role(place),)), *own) if self.secure else own

    def settle(self, place: Place) -> None:
        """One ResourceManager is active, and has a node. A single one answers before it is active,
        becomes it by itself, and refuses to be made it.
        """
        if len(self.managers) > 1 and self.active(place) is None:
            self.admin(place, "-transitionToActive", self.managers[0])
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while not self._has_node(place):
            if time.monotonic() > until:
                raise Failed(
                    f"{self.name}: no node after {SETTLED_SECONDS_MAX:.0f} seconds; the end of its "
                    f"log:\n{place.end_of_log('nodemanager')}"
                )
            time.sleep(0.2)

    def exports(self, place: Place) -> dict[str, str]:
        prefix = "STATESHIFT_" + self.name.replace("-", "_").upper()
        return {
            prefix: ",".join(self.url(place, manager) for manager in self.managers),
            f"{prefix}_CONF": str(place.folder / "conf"),
        }

    def url(self, place: Place, manager: str) -> str:
        return f"http://{HOST}:{place.ports[f'{manager}-http']}"

    def active(self, place: Place) -> str | None:
        """The ResourceManager that is."""
        for manager in self.managers:
            try:
                info = asking.get_json(f"{self.url(place, manager)}/ws/v1/cluster/info")
            except NO:
                continue
            if info["clusterInfo"]["haState"] == "ACTIVE":
                return manager
        return None

    def fail_over(self, place: Place) -> None:
        """From the active ResourceManager to the other."""
        active = self.active(place)
        if active is not None:
            self.admin(place, "-transitionToStandby", active)
        (other,) = (manager for manager in self.managers if manager != active)
        self.admin(place, "-transitionToActive", other)

    def admin(self, place: Place, *words: str) -> None:
        command = hadoop.command("rmadmin", place, HEAPS_MIB["rmadmin"], *words, jars="yarn")
        hadoop.finish(command, place.log("rmadmin"))

    def _has_node(self, place: Place) -> bool:
        if self.secure:  # it answers nobody without a ticket
            return "Registered with ResourceManager" in place.text_of_log("nodemanager")
        active = self.active(place)
        if active is None:
            return False
        url = f"{self.url(place, active)}/ws/v1/cluster/metrics"
        return bool(asking.get_json(url)["clusterMetrics"]["activeNodes"] > 0)

    def _managers(self, place: Place) -> dict[str, str]:
        kinds = {
            "rpc": "address",
            "scheduler": "scheduler.address",
            "tracker": "resource-tracker.address",
            "admin": "admin.address",
            "http": "webapp.address",
        }
        is_pair = len(self.managers) > 1
        site = {
            f"{PREFIX}.bind-host": HOST,
            f"{PREFIX}.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler"
            ".capacity.CapacityScheduler",
            f"{PREFIX}.recovery.enabled": "true",
            f"{PREFIX}.store.class": "org.apache.hadoop.yarn.server.resourcemanager.recovery"
            ".FileSystemRMStateStore",
            f"{PREFIX}.fs.state-store.uri": f"file://{place.folder}/data/state",
            f"{PREFIX}.work-preserving-recovery.scheduling-wait-ms": "1000",
            f"{PREFIX}.nodemanagers.heartbeat-interval-ms": "250",
            f"{PREFIX}.am.max-attempts": "2",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.maximum-allocation-mb": str(MEMORY_MIB),
        }
        for manager in self.managers:
            for kind, key in kinds.items():
                name = f"{PREFIX}.{key}.{manager}" if is_pair else f"{PREFIX}.{key}"
                site[name] = f"{HOST}:{place.ports[f'{manager}-{kind}']}"
        if is_pair:
            site |= {
                f"{PREFIX}.ha.enabled": "true",
                f"{PREFIX}.ha.automatic-failover.enabled": "false",
                f"{PREFIX}.ha.rm-ids": ",".join(self.managers),
                f"{PREFIX}.cluster-id": place.name,
                "yarn.client.failover-sleep-base-ms": "200",
                "yarn.client.failover-sleep-max-ms": "500",
            }
        return site

    def _node(self, place: Place) -> dict[str, str]:
        ports, data = place.ports, place.folder / "data"
        node = "yarn.nodemanager"
        return {
            f"{node}.hostname": HOST,
            f"{node}.bind-host": HOST,
            f"{node}.address": f"{HOST}:{ports['node']}",
            f"{node}.webapp.address": f"{HOST}:{ports['node-http']}",
            f"{node}.localizer.address": f"{HOST}:{ports['localizer']}",
            f"{node}.collector-service.address": f"{HOST}:{ports['collector']}",
            f"{node}.local-dirs": str(data / "local"),
            f"{node}.log-dirs": str(data / "logs"),
            f"{node}.resource.memory-mb": str(MEMORY_MIB),
            f"{node}.resource.cpu-vcores": str(CORES),
            f"{node}.vmem-check-enabled": "false",
            f"{node}.pmem-check-enabled": "false",
            f"{node}.env-whitelist": "JAVA_HOME",
            f"{node}.sleep-delay-before-sigkill.ms": "1000",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
            "yarn.log-aggregation-enable": "false",
        }

    def _manager(self, place: Place, manager: str) -> Role:
        url = f"{self.url(place, manager)}/ws/v1/cluster/info"
        one_of_two = ("-D", f"{PREFIX}.ha.id={manager}") if len(self.managers) > 1 else ()
        return self._role(
            place,
            manager,
            "resourcemanager",
            lambda: self._answers(url, "clusterInfo"),
            one_of_two,
        )

    def _nodemanager(self, place: Place) -> Role:
        url = f"http://{HOST}:{place.ports['node-http']}/ws/v1/node/info"
        return self._role(
            place, "nodemanager", "nodemanager", lambda: self._answers(url, "nodeInfo"), ()
        )

    def _answers(self, url: str, field: str) -> bool:
        try:
            return field in asking.get_json(url)
        except urllib.error.HTTPError as error:
            return self.secure and error.code == 401

    def _role(
        self,
        place: Place,
        name: str,
        kind: str,
        answers: Callable[[], bool],
        words: tuple[str, ...],
    ) -> Role:
        command = hadoop.command(kind, place, HEAPS_MIB[kind], *words, jars="yarn")
        home = Path(downloads.java()).resolve().parents[1]
        environment = {"HADOOP_CONF_DIR": str(place.folder / "conf"), "JAVA_HOME": str(home)}
        if self.secure:
            environment |= kerberos.client(place, kind)
        return Role(name, command, answers, environment)


def _secure_core(place: Place) -> dict[str, str]:
    secret = place.folder / "conf" / "http-secret"
    secret.write_text("shared by the web pages of all servers")
    web = "hadoop.http.authentication"
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.http.filter.initializers": (
            "org.apache.hadoop.security.AuthenticationFilterInitializer"
        ),
        f"{web}.type": "kerberos",
        f"{web}.kerberos.principal": "*",  # each that is in the keytab
        f"{web}.kerberos.keytab": str(kerberos.keytab(place, WEB)),
        f"{web}.signature.secret.file": str(secret),
        f"{web}.simple.anonymous.allowed": "false",
    }


def _secure_site(place: Place) -> dict[str, str]:
    site = {}
    for kind, name in ((PREFIX, "rm/localhost"), ("yarn.nodemanager", "nm/localhost")):
        site |= {
            f"{kind}.principal": f"{name}@{kerberos.REALM}",
            f"{kind}.keytab": str(kerberos.keytab(place, name)),
            f"{kind}.webapp.spnego-principal": "*",
            f"{kind}.webapp.spnego-keytab-file": str(kerberos.keytab(place, WEB)),
        }
    return site
