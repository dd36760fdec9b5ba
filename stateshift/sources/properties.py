"""A file of client properties, as Java's clients and librdkafka's have them, in the words of
`kafka-python`. Pure.

    security.protocol=SASL_SSL                      security_protocol
    sasl.mechanism=SCRAM-SHA-512                    sasl_mechanism
    sasl.jaas.config=... username="a" password="b"; sasl_plain_username, sasl_plain_password
    sasl.username, sasl.password                    likewise, as librdkafka spells them
    ssl.ca.location, ssl.certificate.location, ssl.key.location, ssl.key.password: PEM files

What has nothing to do with how to connect is passed over. What has, and is not known here, is
refused by its name: a connection without it would fail for a reason that nobody could see. Values
are never shown.
"""

from __future__ import annotations

import re

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


def client_options(text: str, path: str) -> dict[str, str | bool]:
    """Return what the client is given.

    Raises:
        PlanError: a property, by its name, is not one that can be used.
    """
    options: dict[str, str | bool] = {}
    for name, value in properties(text).items():
        if name == "sasl.jaas.config":
            options |= _login(value)
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


def _login(jaas: str) -> dict[str, str]:
    """Return user name and password of a JAAS configuration, as far as it has them."""
    login = {}
    for word, *quotings in _JAAS.findall(jaas):
        login[f"sasl_plain_{word}"] = next(filter(None, quotings), "")
    return login


def properties(text: str) -> dict[str, str]:
    """Return names and values of Java's format: comments begin with # or !, a backslash at its end
    continues a line.
    """
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    lines = map(str.strip, joined.splitlines())
    pairs = [_LINE.match(line) for line in lines if not line.startswith(("#", "!"))]
    return {pair[1]: pair[2] for pair in pairs if pair is not None}
