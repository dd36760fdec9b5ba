"""Who we are to a service over HTTP: a name and a password, a ticket, a token, or headers of a
gateway before it.

Options: auth (none, basic, kerberos), user, password_file; token_file (sent as a bearer's);
header_files, from the header's name to the file that has its value. What is secret is read from
files and environment when it is sent, and is kept nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stateshift.clusters.http.rest import read_secret
from stateshift.clusters.options import Expected
from stateshift.errors import ClusterError

AUTHENTICATION = Expected("none, basic or kerberos", lambda v: v in ("none", "basic", "kerberos"))


def authentication(options: Mapping[str, Any], cluster: str, password_variable: str) -> Any:
    """What `requests` takes as `auth`."""
    match options.get("auth", "none"):
        case "basic":
            return str(options.get("user", "")), _password(options, cluster, password_variable)
        case "kerberos":
            try:
                from requests_kerberos import OPTIONAL, HTTPKerberosAuth
            except ImportError as error:
                fact = f'"auth": "kerberos" needs a package that is not installed ({error})'
                raise ClusterError(
                    fact, cluster=cluster, hint="pip install 'stateshift[kerberos]'"
                ) from error
            return HTTPKerberosAuth(mutual_authentication=OPTIONAL)
    return None


def secret_headers(options: Mapping[str, Any], cluster: str) -> dict[str, str]:
    headers = {
        str(name): read_secret(file, f"header {name}", cluster)
        for name, file in dict(options.get("header_files") or {}).items()
    }
    file = options.get("token_file")
    return (
        {**headers, "Authorization": f"Bearer {read_secret(file, 'token', cluster)}"}
        if file
        else headers
    )


def _password(options: Mapping[str, Any], cluster: str, variable: str) -> str:
    file = options.get("password_file")
    return (
        read_secret(file, "password", cluster) if file is not None else os.environ.get(variable, "")
    )
