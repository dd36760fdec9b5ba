"""Client properties as Java has them, in the words of the client that reads them here."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.errors import PlanError, StorageError
from stateshift.sources.kafka import client_options, read_properties, spans


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("# security.protocol=SSL\n! a=b\n\ngroup.id = orders\n", {}),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism : SCRAM-SHA-512\n",
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"},
        ),
        (
            "sasl.username=a\nsasl.password=b=c d\n",
            {"sasl_plain_username": "a", "sasl_plain_password": "b=c d"},
        ),
        (
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
            "  username=\"a;b\" password='c \\ d';\n",
            {"sasl_plain_username": "a;b", "sasl_plain_password": "c \\ d"},
        ),
        (
            "ssl.ca.location=/ca.pem\nssl.endpoint.identification.algorithm=\n",
            {"ssl_cafile": "/ca.pem", "ssl_check_hostname": False},
        ),
    ],
)
def test_what_is_about_connecting_is_taken_over_and_nothing_else(
    text: str, options: dict[str, object]
) -> None:
    assert client_options(text, "client.properties") == options


def test_what_cannot_be_used_is_refused_by_name_and_its_value_is_not_told() -> None:
    with pytest.raises(
        PlanError, match=r"client\.properties: the property ssl\.truststore\.password"
    ) as raised:
        client_options("ssl.truststore.password=hunter2", "client.properties")
    assert "PEM" in (raised.value.hint or "")
    assert "hunter2" not in f"{raised.value.fact} {raised.value.hint} {raised.value.where}"


def test_lines_that_go_on_are_one() -> None:
    assert read_properties("a = one \\\n   two\nb:c\n") == {"a": "one two", "b": "c"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read: No such file"):
        spans("broker:9092", f"file://{tmp_path}/none", ["orders"])
