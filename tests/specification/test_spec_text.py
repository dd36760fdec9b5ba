"""What the text itself may get wrong: JSON, doubled keys, placeholders, secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.errors import Complaint, SpecError
from stateshift.specification import Spec, parse_spec


def read(job: dict[str, Any], environment: dict[str, str] | None = None, **top: Any) -> Spec:
    jobs = [{"name": "a", "checkpoint_location": "/a", **job}]
    return parse_spec(json.dumps({"version": 1, **top, "jobs": jobs}), environment=environment)


def refused(text: str, **more: Any) -> tuple[Complaint, ...]:
    with pytest.raises(SpecError) as error:
        parse_spec(text, **more)
    json.dumps(error.value.as_json(), allow_nan=False).encode()
    return error.value.complaints


def refused_job(job: dict[str, Any], **top: Any) -> tuple[Complaint, ...]:
    return refused(
        json.dumps(
            {"version": 1, **top, "jobs": [{"name": "a", "checkpoint_location": "/a", **job}]}
        )
    )


def test_a_syntax_error_is_told_with_line_and_column() -> None:
    (complaint,) = refused('{"version": 1,\n "jobs": [}')
    assert complaint.message.endswith("(line 2, column 11)")


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "1" * 5000, "{" * 50, "\ufeff", '"\\ud800"', "null", "[]", "NaN"]
)
def test_what_is_no_spec_at_all_is_refused_without_a_crash(text: str) -> None:
    assert refused(text)


def test_a_byte_order_mark_at_the_beginning_is_skipped() -> None:
    assert (
        parse_spec('\ufeff{"jobs": [{"name": "a", "checkpoint_location": "/a"}]}').jobs[0].name
        == "a"
    )


def test_a_key_that_stands_twice_is_refused_where_it_stands() -> None:
    stop = '{"a/b~": 1, "a/b~": 2}'
    complaints = refused(
        f'{{"jobs": [{{"name": "a", "checkpoint_location": "/a", "stop": {stop}}}]}}'
    )
    assert [complaint.pointer for complaint in complaints] == ["/jobs/0/stop/a~1b~0"]


def test_numbers_that_are_none_are_refused() -> None:
    for number in ("NaN", "-Infinity", "1e999"):
        job = '{"name": "a", "checkpoint_location": "/a"}'
        (complaint,) = refused(f'{{"version": 1, "parallel": {number}, "jobs": [{job}]}}')
        assert complaint.pointer == "/parallel"


def test_all_complaints_come_at_once() -> None:
    text = '{"version": 1, "paralel": 1, "restart": 5, "jobs": [{"nme": "a"}, 7]}'
    assert [c.pointer for c in refused(text)] == [
        "/paralel",
        "/restart",
        "/jobs/0/nme",
        "/jobs/0",
        "/jobs/0",
        "/jobs/1",
    ]


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    (complaint,) = refused_job({"merge_job": []})
    assert complaint.message == "unknown key 'merge_job', did you mean 'merge_jobs'?"


def test_a_value_under_an_unknown_key_is_not_repeated() -> None:
    assert "hunter2" not in repr(refused_job({"pasword": "hunter2"}))


def test_placeholders_are_replaced_in_texts_at_any_depth() -> None:
    spec = read(
        {
            "checkpoint_location": "${A}/x",
            "stop": {"deep": [{"x": "${A}${B}"}]},
            "remote_connection": "h:${PORT}",
        },
        environment={"A": "/data", "B": "${A}", "PORT": "7077"},
    )
    job = spec.jobs[0]
    assert (job.source, job.connection) == ("file:///data/x", "h:7077")
    assert job.stop == {"deep": [{"x": "/data${A}"}]}


def test_a_protected_placeholder_stays_for_the_shell() -> None:
    assert read({"stop": {"command": "kill $${PID:-1} $PID $$"}}).jobs[0].stop == {
        "command": "kill ${PID:-1} $PID $$"
    }


@pytest.mark.parametrize("text", ["${UNSET}", "${UN SET}", "${", "${}", "a ${1}"])
def test_a_placeholder_without_a_value_is_refused(text: str) -> None:
    (complaint,) = refused_job({"stop": {"command": text}})
    assert complaint.pointer == "/jobs/0/stop/command"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "dbPassword",
        "DB_PASSWD",
        "token",
        "API-TOKEN",
        "spark.hadoop.fs.s3a.secret.key",
        "accessKey",
        "fs.azure.account.key.x",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "credentials",
        "accesskey",
    ],
)
def test_a_credential_is_refused_wherever_options_are_carried(key: str) -> None:
    clusters = {"c": {"kind": "manual", "deep": [{key: "hunter2"}]}}
    job = {
        "target_cluster": "c",
        "submit": {"environment": {key: "hunter2"}},
        "stop": {key: 5},
        "transform": [{key: "hunter2"}],
    }
    complaints = refused_job(job, clusters=clusters)
    assert sorted(complaint.pointer for complaint in complaints) == [
        f"/clusters/c/deep/0/{key}",
        f"/jobs/0/stop/{key}",
        f"/jobs/0/submit/environment/{key}",
        f"/jobs/0/transform/0/{key}",
    ]
    assert "hunter2" not in repr(complaints)


@pytest.mark.parametrize(
    "key",
    [
        "password_file",
        "fs.s3a.aws.credentials.provider",
        "tokenizer",
        "max_tokens",
        "partition.key",
        "keytab",
        "secretary",
    ],
)
def test_a_key_that_only_names_where_a_credential_is_passes(key: str) -> None:
    assert read({"stop": {key: "x"}}).jobs[0].stop == {key: "x"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password", "hunter2"],
        ["--pass", "hunter2"],
        ["curl", "-s", "-u", "etl:hunter2", "http://h:8083/"],
        ["/usr/bin/curl", "--user=etl:hunter2", "http://h:8083/"],
        ["curl", "-uetl:hunter2", "http://h:8083/"],
        ["--input", "x", "--db-password", "hunter2", "--output", "y"],
        ["--dbPassword=hunter2"],
        ["-Dfs.s3a.secret.key=hunter2"],
        ["--conf", "spark.hadoop.fs.s3a.secret.key=hunter2"],
        ["DB_PASSWORD=hunter2"],
        ["--api-key", "hunter2"],
    ],
)
def test_a_credential_among_arguments_is_refused_and_never_repeated(arguments: list[str]) -> None:
    clusters = {"c": {"kind": "manual"}}
    job = {
        "target_cluster": "c",
        "submit": {"arguments": arguments},
        "stop": {"command": " ".join(arguments)},
    }
    complaints = refused_job(job, clusters=clusters)
    pointers = sorted(complaint.pointer for complaint in complaints)
    secret = next(number for number, word in enumerate(arguments) if "hunter2" in word)
    assert pointers == ["/jobs/0/stop/command", f"/jobs/0/submit/arguments/{secret}"]
    assert "hunter2" not in repr(complaints)
    assert all("file" in (complaint.expected or "") for complaint in complaints)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password-file", "/run/secrets/db"],
        ["docker", "run", "-u", "1000:1000", "spark"],
        ["curl", "-u", "etl:$PASSWORD", "http://h:8083/"],
        ["curl", "-u", "etl", "http://h:8083/"],
        ["--password", "{secret}"],
        ["--password", "$DB_PASSWORD"],
        ["--password", "$(cat /run/secrets/db)"],
        ["--token", "--other", "x"],
        ["fs.s3a.aws.credentials.provider=org.example.Provider"],
        ["--password"],
    ],
)
def test_an_argument_that_only_names_where_a_credential_is_passes(arguments: list[str]) -> None:
    assert read({"stop": {"words": arguments}}).jobs[0].stop == {"words": arguments}


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://me:hunter2@nn/a",
        "s3://KEY:hunter2/x+y@bucket",
        "curl https://me:hunter2@h/x",
        "x://:hunter2@h",
        "hdfs:/x/nn:80s3a://me:hunter2@h/x",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_repeated(text: str) -> None:
    complaints = refused_job(
        {
            "remote_location": "hdfs://me:hunter2@nn/b",
            "merge_jobs": ["hdfs://me:hunter2@nn/b"],
            "waive": [text],
        }
    )
    assert "/jobs/0/waive/0" in [complaint.pointer for complaint in complaints]
    assert "hunter2" not in repr(complaints)


def test_a_password_that_comes_from_the_environment_is_refused_as_well() -> None:
    with pytest.raises(SpecError) as error:
        read({"remote_location": "hdfs://${WHO}@nn/b"}, environment={"WHO": "me:hunter2"})
    assert "hunter2" not in repr(error.value.complaints)


@pytest.mark.parametrize(
    "text", ["hdfs://nn:8020/users/a@b", "abfss://container@account.net/x", "spark://a:1,b:2/x@y"]
)
def test_an_at_sign_elsewhere_is_no_password(text: str) -> None:
    assert read({"stop": {"x": text}}).jobs[0].stop == {"x": text}


@pytest.mark.parametrize(
    ("wrong", "begins"),
    [
        ({"mode": "warn"}, '"mode": move: stop the job'),
        ({"remote_locaton": "/y"}, '"remote_location": Where the image goes'),
        ({"submit": {}}, '"target_cluster": The cluster that runs it afterwards'),
        ({"source_cluster": "c"}, '"source_cluster": The cluster that runs the job now'),
        ({"mode": "warn", "submit": {}}, "stateshift schema >"),
        ({"transform": [{"kind": "compact", "x": 1}]}, "stateshift schema >"),
    ],
)
def test_the_hint_of_a_single_mistake_is_what_its_key_says(
    wrong: dict[str, object], begins: str
) -> None:
    job = {"name": "a", "checkpoint_location": "/x", **wrong}
    with pytest.raises(SpecError) as error:
        parse_spec(json.dumps({"version": 1, "jobs": [job]}))
    assert (error.value.hint or "").startswith(begins)


def test_the_hint_says_where_credentials_belong() -> None:
    with pytest.raises(SpecError) as error:
        read({"stop": {"password": "x"}})
    assert error.value.hint is not None and "~/.hdfscli.cfg" in error.value.hint
