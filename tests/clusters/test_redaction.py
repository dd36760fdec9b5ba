"""What is a secret and what is not, as values."""

from __future__ import annotations

import time

import pytest

from stateshift.clusters.redaction import last_lines, redact, redact_words


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=abc def", "password=*** def"),
        ("spark.hadoop.fs.s3a.secret.key=AbC/1+2", "spark.hadoop.fs.s3a.secret.key=***"),
        ('{"api_key": "x y", "user": "u"}', '{"api_key": ***, "user": "u"}'),
        ("curl --token abc http://h", "curl --token *** http://h"),
        ("Authorization: Bearer eyJhbGciOi.J9", "Authorization: Bearer ***"),
        ("jdbc:pg://me:pw@h:5432/d", "jdbc:pg://me:***@h:5432/d"),
        ("a=1&sas_token=x&b=2", "a=1&sas_token=***&b=2"),
    ],
)
def test_a_value_whose_name_sounds_like_a_secret_is_taken_out(text: str, clean: str) -> None:
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "INFO TokenManager started in 3 s",
        "Stage 0 (start at NativeMethodAccessorImpl.java:0) finished",
        "hdfs://nn:8020/user/a:b@c",
        "key=7 partitions=200",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_the_values_of_secret_variables_are_found_anywhere() -> None:
    environment = {"DB_PASSWORD": "s3cr3t", "HOME": "/root", "TOKEN_TTL": "60"}
    assert redact("user s3cr3t in /root for 60 s", environment) == "user *** in /root for 60 s"


def test_last_lines_are_the_last_that_say_something() -> None:
    assert last_lines("a\nb\nc\n\n\n", 2) == "b\nc"
    assert last_lines("a", 0) == last_lines("", 3) == ""


@pytest.mark.parametrize(
    "text",
    [
        'args: ["--password", "hunter2", "--input", "x"]',
        "['--db-token', 'hunter2', '--input', 'x']",
        '{"arguments":["--api-key","hun\\"hunter2","--input","x"]}',
    ],
)
def test_a_list_of_arguments_as_json_or_python_writes_it_is_redacted(text: str) -> None:
    shown = redact(text)
    assert "hunter2" not in shown
    assert "--input" in shown


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("curl -s -u etl:a=hunter2 http://h:8083/", "curl -s -u *** http://h:8083/"),
        ("/bin/curl --user=etl:hunter2 http://h/", "/bin/curl --user=*** http://h/"),
        ("curl -uetl:hunter2 http://h/", "curl *** http://h/"),
        ("run.sh --pass hunter2 -v", "run.sh --pass *** -v"),
        ("docker run -u 1000:1000 spark", "docker run -u 1000:1000 spark"),
    ],
)
def test_the_words_of_a_command_are_shown_without_its_credentials(text: str, clean: str) -> None:
    assert " ".join(redact_words(text.split())) == clean


def test_a_word_of_any_length_takes_no_time_to_speak_of() -> None:
    text = ("x" * 100_000 + "\n") * 3
    began = time.monotonic()
    assert redact(text + "a.b-" * 9 + "password=hunter22") == text + "a.b-" * 9 + "password=***"
    assert time.monotonic() - began < 10
