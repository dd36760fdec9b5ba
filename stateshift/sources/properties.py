"""A file of client properties, as Java's clients and librdkafka's have them, in the words of
`kafka-python`. Pure.

    security.protocol=SASL_SSL                     security_protocol
    sasl.mechanism=SCRAM-SHA-512                   sasl_mechanism
    sasl.jaas.config=... username="a" password="b";    sasl_plain_username, sasl_plain_password
    sasl.username, sasl.password                   likewise, as librdkafka spells them
    ssl.ca.location, ssl.certificate.location, ssl.key.location, ssl.key.password    PEM files

What has nothing to do with how to connect is passed over. What has, and is not known here, is
refused by its name: a connection without it would fail for a reason that nobody could see. Values
are never told.
"""

from __future__ import annotations

import re
from typing import Any

from stateshift.errors import PlanError

_WORDS = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_OF_CONNECTING = ("security.", "sasl.", "ssl.")
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")
_LINE = re.compile(r"\s*([^\s:=]+)\s*[:=]?\s*(.*?)\s*\Z")


def client_options(text: str, path: str) -> dict[str, Any]:
    """What the client is given; PlanError, with the property's name, where it could not be."""
    options: dict[str, Any] = {}
    for name, value in properties(text).items():
        if name == "sasl.jaas.config":
            found = {word: next(filter(None, rest), "") for word, *rest in _JAAS.findall(value)}
            options |= {f"sasl_plain_{word}": told for word, told in found.items()}
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = value != ""
        elif name in _WORDS:
            options[_WORDS[name]] = value
        elif name.startswith(_OF_CONNECTING):
            known = ", ".join((*_WORDS, "sasl.jaas.config"))
            raise PlanError(
                f"{path}: the property {name} is not one that can be used here",
                hint=f"known are {known}; keys and certificates are PEM files",
            )
    return options


def properties(text: str) -> dict[str, str]:
    """Names and values of Java's format: comments begin with # or !, a backslash at its end
    continues a line.
    """
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    lines = (line.strip() for line in joined.splitlines())
    found = (_LINE.match(line) for line in lines if line and line[0] not in "#!")
    return {each[1]: each[2] for each in found if each is not None}
