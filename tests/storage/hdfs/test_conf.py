"""Which NameNodes a name stands for: as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.errors import StorageError
from stateshift.storage.hdfs.conf import HadoopConf, decode_conf, read_conf

SHOP = {
    "fs.defaultFS": "hdfs://shop",
    "dfs.nameservices": "shop, archive",
    "dfs.ha.namenodes.shop": "nn1,nn2",
    "dfs.namenode.rpc-address.shop.nn1": "one.example:8020",
    "dfs.namenode.rpc-address.shop.nn2": "two.example:8020",
    "dfs.namenode.http-address.shop.nn1": "one.example:50070",
    "dfs.namenode.https-address.shop.nn1": "one.example:50470",
    "dfs.namenode.http-address.shop.nn2": "0.0.0.0:50070",
    "dfs.namenode.rpc-address.archive": "three.example:8020",
}


@pytest.mark.parametrize(
    ("authority", "urls"),
    [
        ("shop", ("http://one.example:50070", "http://two.example:50070")),
        ("archive", ("http://three.example:9870",)),
        ("two.example:8020", ("http://two.example:50070",)),
        ("three.example:8020", ("http://three.example:9870",)),
        ("elsewhere.example:8020", ("http://elsewhere.example:9870",)),
        ("elsewhere.example", ("http://elsewhere.example:9870",)),
        ("namenode", ("http://namenode:9870",)),
    ],
)
def test_a_name_stands_for_the_namenodes_that_are_configured(
    authority: str, urls: tuple[str, ...]
) -> None:
    assert HadoopConf(SHOP).web_urls(authority) == urls


@pytest.mark.parametrize(
    ("authority", "addresses"),
    [
        ("shop", ("one.example:8020", "two.example:8020")),
        ("archive", ("three.example:8020",)),
        ("elsewhere.example:9000", ("elsewhere.example:9000",)),
        ("elsewhere.example", ("elsewhere.example:8020",)),
    ],
)
def test_a_name_stands_for_addresses_of_hadoops_own_rpc(
    authority: str, addresses: tuple[str, ...]
) -> None:
    assert HadoopConf(SHOP).rpc_addresses(authority) == addresses


def test_a_policy_of_tls_only_is_followed() -> None:
    conf = HadoopConf({**SHOP, "dfs.http.policy": "HTTPS_ONLY"})
    assert conf.web_urls("shop") == ("https://one.example:50470", "https://two.example:9871")


def test_the_only_namenode_is_found_by_the_default_file_system() -> None:
    conf = HadoopConf(
        {"fs.defaultFS": "hdfs://one:9000", "dfs.namenode.http-address": "0.0.0.0:1234"}
    )
    assert conf.default_authority == "one:9000"
    assert conf.web_urls("one:9000") == ("http://one:1234",)
    assert conf.web_urls("two:9000") == ("http://two:9870",)


def test_a_nameservice_without_addresses_has_none() -> None:
    assert (
        HadoopConf({"dfs.nameservices": "shop", "dfs.ha.namenodes.shop": "nn1"}).web_urls("shop")
        == ()
    )


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("hdfs://shop/user", "shop"),
        ("hdfs://a:1/", "a:1"),
        ("webhdfs://a:2", "a:2"),
        ("s3a://bucket", ""),
        ("", ""),
    ],
)
def test_the_default_file_system_is_one_of_hdfs_or_none(text: str, authority: str) -> None:
    assert HadoopConf({"fs.defaultFS": text}).default_authority == authority


def test_variables_are_replaced_and_a_circle_of_them_ends() -> None:
    conf = HadoopConf({"a": "${b}:${c}", "b": "host", "circle": "${circle}x", "open": "${nobody}"})
    assert conf.get("a") == "host:${c}"
    assert conf.get("open") == "${nobody}"
    assert conf.get("circle").endswith("x")
    assert conf.get("missing", "default") == "default"


def test_files_are_read_from_the_directory_that_the_environment_names(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text(_xml({"fs.defaultFS": "hdfs://${env.NAME:-shop}"}))
    (tmp_path / "hdfs-site.xml").write_text(_xml({"dfs.nameservices": " shop\n"}))
    conf = read_conf({"HADOOP_CONF_DIR": str(tmp_path)})
    assert (conf.default_authority, conf.names("dfs.nameservices")) == ("shop", ("shop",))
    assert conf.place == str(tmp_path)
    assert (
        read_conf({"HADOOP_CONF_DIR": str(tmp_path), "NAME": "other"}).default_authority == "other"
    )


def test_nothing_configured_is_no_error() -> None:
    assert read_conf({}) == HadoopConf({})
    assert read_conf({"HADOOP_CONF_DIR": "/is/not/there"}).properties == {}


def test_a_file_that_is_no_xml_is_named(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(
        StorageError, match=r"core-site\.xml is not a Hadoop configuration"
    ) as raised:
        read_conf({"HADOOP_CONF_DIR": str(tmp_path)})
    assert raised.value.hint is not None


def test_properties_without_a_value_are_empty() -> None:
    text = "<configuration><property><name>a</name></property><property><value>x</value></property></configuration>"
    assert decode_conf(text, "here") == {"a": ""}


def _xml(properties: dict[str, str]) -> str:
    inside = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items()
    )
    return f"<?xml version='1.0'?><configuration>{inside}</configuration>"
