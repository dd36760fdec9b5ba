"""A Kerberos realm of this machine, by MIT's KDC: for servers that ask who somebody is.

make(place)             its database, and a keytab for each name; once
role(place)             the KDC
client(place, "us")     the environment in which somebody is "us", as far as a ticket is held
kinit(place, "us")      gets that ticket
kdestroy(place, "us")   throws it away
packages()              the extra `kerberos`, in a folder for PYTHONPATH
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from servers import downloads
from servers.faults import Failed, Unavailable
from servers.place import Place, Role
from servers.ports import HOST

REALM = "STATESHIFT.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "kdestroy")
PACKAGES = (
    *("requests-kerberos==0.15.0", "pyspnego==0.12.4", "gssapi==1.12.0", "krb5==0.10.0"),
    "decorator==5.3.1",
)
SECONDS_MAX = 60.0
CONF = """[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""
KDC_CONF = """[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {data}/principal
    key_stash_file = {data}/stash
    acl_file = {data}/acl
    max_life = 1d
  }}
"""


def fetch() -> None:
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        debian = "Debian, Ubuntu: krb5-kdc, krb5-admin-server and krb5-user"
        raise Unavailable(f"Kerberos is missing ({', '.join(missing)}): install it ({debian})")


def packages() -> Path:
    """They are compiled here, against MIT's library."""
    return downloads.packages(*PACKAGES)


def make(place: Place, names: tuple[str, ...]) -> None:
    data = place.folder / "data" / "kdc"
    known = {"realm": REALM, "host": HOST, "port": place.ports["kdc"], "data": data}
    place.write("conf/krb5.conf", CONF.format(**known))
    place.write("conf/kdc.conf", KDC_CONF.format(**known))
    if (data / "stash").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    _run(place, "kdb5_util", "create", "-s", "-r", REALM, "-P", "stateshift")
    for name in names:
        _run(place, "kadmin.local", "-q", f"addprinc -randkey {name}")
        _run(place, "kadmin.local", "-q", f"ktadd -norandkey -k {keytab(place, name)} {name}")


def keytab(place: Place, name: str) -> Path:
    return place.folder / "conf" / f"{name.partition('/')[0]}.keytab"


def role(place: Place) -> Role:
    def answers() -> bool:
        with socket.create_connection((HOST, place.ports["kdc"]), timeout=1.0):
            return True

    command = (str(_program("krb5kdc")), "-n", "-P", str(place.folder / "data" / "kdc" / "pid"))
    return Role("kdc", command, answers, environment(place))


def environment(place: Place) -> dict[str, str]:
    conf = place.folder / "conf"
    return {"KRB5_CONFIG": str(conf / "krb5.conf"), "KRB5_KDC_PROFILE": str(conf / "kdc.conf")}


def client(place: Place, name: str) -> dict[str, str]:
    conf = place.folder / "conf"
    java = f"-Djava.security.krb5.conf={conf / 'krb5.conf'}"
    return {
        "KRB5_CONFIG": str(conf / "krb5.conf"),
        "KRB5CCNAME": f"FILE:{place.folder / 'data' / name}.ticket",
        "JAVA_TOOL_OPTIONS": java,
    }


def kinit(place: Place, name: str) -> None:
    _run(place, "kinit", "-k", "-t", str(keytab(place, name)), name, env=client(place, name))


def kdestroy(place: Place, name: str) -> None:
    _run(place, "kdestroy", env=client(place, name))


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _run(place: Place, name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(_program(name)), *words],
        env={**environment(place), **(env or {}), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    if done.returncode:
        raise Failed(
            f"{name} {' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
