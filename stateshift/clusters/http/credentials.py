"""Credentials for a service over HTTP: a name and a password, a ticket, a token, or headers of a
gateway before it.

Options: auth (none, basic, kerberos), user, password_file; token_file (sent as a bearer's);
header_files, from the header's name to the file that has its value. A secret is read from files and
environment when it is sent, and is kept nowhere.
"""

from __future__ import annotations

import os

from stateshift.clusters.http.rest import Authentication, read_secret
from stateshift.clusters.options import Options
from stateshift.errors import ClusterError


def authentication(options: Options, cluster: str, password_variable: str) -> Authentication:
    """Return the argument `auth` of `requests`."""
    match options.get("auth", "none"):
        case "basic":
            file = options.get("password_file")
            if file is None:
                password = os.environ.get(password_variable, "")
            else:
                password = read_secret(file, "password", cluster)
            return str(options.get("user", "")), password
        case "kerberos":
            try:
                from requests_kerberos import OPTIONAL, HTTPKerberosAuth
            except ImportError as error:
                fact = f'"auth": "kerberos" needs a package that is not installed ({error})'
                hint = "pip install 'stateshift[kerberos]'"
                raise ClusterError(fact, cluster=cluster, hint=hint) from error
            kerberos: Authentication = HTTPKerberosAuth(mutual_authentication=OPTIONAL)
            return kerberos
    return None


def secret_headers(options: Options, cluster: str) -> dict[str, str]:
    """Return the headers whose values lie in files, each read again."""
    files = options.get("header_files") or {}
    headers = {
        str(name): read_secret(file, f"header {name}", cluster) for name, file in files.items()
    }
    token_file = options.get("token_file")
    if token_file:
        headers["Authorization"] = f"Bearer {read_secret(token_file, 'token', cluster)}"
    return headers
