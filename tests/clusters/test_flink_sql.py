"""A file of SQL: where its statements end, and which files one job comes of."""

from __future__ import annotations

import pytest

from stateshift.clusters.flink.sql import BrokenSql, faults_of, refused_setting, statements_of

SOURCE = "CREATE TABLE a (id BIGINT, p AS PROCTIME()) WITH ('connector' = 'x');"
INSERT = "INSERT INTO b SELECT id FROM a"


def texts(sql: str) -> list[str]:
    return [statement.text for statement in statements_of(sql)]


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", []),
        (" ;; \n; -- nothing; here\n", []),
        ("USE a; USE b", ["USE a", "USE b"]),
        ("-- one; two\nUSE a -- three; four\n;", ["USE a -- three; four"]),
        ("// it's; here\nUSE a", ["USE a"]),
        ("/* a; ' */ USE a; /* b */", ["USE a"]),
        ("USE /* ; */ a; USE b", ["USE /* ; */ a", "USE b"]),
        ("SET 'a' = ';'; USE b", ["SET 'a' = ';'", "USE b"]),
        ("SET 'a' = 'it''s; -- so'; USE b", ["SET 'a' = 'it''s; -- so'", "USE b"]),
        ("USE `a``;`; USE b", ["USE `a``;`", "USE b"]),
        (
            r"CREATE VIEW v AS SELECT E'it\'s; so'; USE b",
            [r"CREATE VIEW v AS SELECT E'it\'s; so'", "USE b"],
        ),
        ("SET 'a' = 'http://b/c'; USE d", ["SET 'a' = 'http://b/c'", "USE d"]),
        ("CREATE VIEW v AS SELECT 7-1/2; USE b", ["CREATE VIEW v AS SELECT 7-1/2", "USE b"]),
        (
            "INSERT INTO b SELECT /*+ TTL('a'='1d;') */ 1",
            ["INSERT INTO b SELECT /*+ TTL('a'='1d;') */ 1"],
        ),
    ],
)
def test_a_semicolon_ends_a_statement_outside_of_comments_and_quotes(
    sql: str, statements: list[str]
) -> None:
    assert texts(sql) == statements


@pytest.mark.parametrize(
    "opened",
    [
        "BEGIN STATEMENT SET;",
        "begin /* ; */ statement set ;",
        "EXECUTE STATEMENT SET BEGIN",
        "Execute Statement Set\nBegin",
    ],
)
def test_a_statement_set_is_one_statement(opened: str) -> None:
    inner = (
        "\nINSERT INTO b SELECT CASE WHEN id > 1 THEN 1 END FROM a;\nINSERT INTO c SELECT id "
        "FROM a; -- so;\n"
    )
    found = statements_of(f"{SOURCE}\n{opened}{inner}end;\nUSE d")
    assert [one.starts_job for one in found] == [False, True, False]
    assert found[1].text.upper().split()[:4] == ["EXECUTE", "STATEMENT", "SET", "BEGIN"]
    assert found[1].text.count("INSERT") == 2 and found[1].text.endswith("-- so;\nEND")
    assert found[1].line == 2
    assert found[2].line == 6 + opened.count("\n")


@pytest.mark.parametrize(
    ("sql", "fact"),
    [
        ("USE a;\nSET 'a' = 'b;\n", "line 2: the ' here is never closed"),
        ("USE `a;", "line 1: the ` here is never closed"),
        ("USE a; /* b;\n", "line 1: the /* here is never closed"),
        ("USE a;\n\nBEGIN STATEMENT SET;\nINSERT INTO b SELECT 1;", "line 3: the statement set"),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT CASE WHEN 1 > 0 THEN 1 END;",
            "line 1: the statement set",
        ),
    ],
)
def test_what_is_never_closed_is_told_with_its_line(sql: str, fact: str) -> None:
    with pytest.raises(BrokenSql, match=fact.replace("*", r"\*")):
        statements_of(sql)


@pytest.mark.parametrize(
    "last",
    [
        INSERT,
        "insert overwrite b SELECT 1",
        "EXECUTE PLAN 'file:///p.json'",
        f"COMPILE AND EXECUTE PLAN 'p' FOR {INSERT}",
        f"EXECUTE STATEMENT SET BEGIN {INSERT}; {INSERT}; END",
        f"BEGIN STATEMENT SET; {INSERT}; END",
        "INSERT INTO b WITH x AS (SELECT 1) SELECT * FROM x",
        (
            "COMPILE AND EXECUTE PLAN 'p' FOR STATEMENT SET BEGIN INSERT INTO b SELECT 1; "
            "INSERT INTO b SELECT 2; END"
        ),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        SOURCE,
        "ADD JAR '/a.jar'; LOAD MODULE hive;",
        "SET; SET 'a' = 'b'; RESET 'a';",
        "CREATE VIEW v AS SELECT 1;",
        "CREATE TEMPORARY VIEW v AS SELECT 1; DROP TABLE IF EXISTS a;",
        "SET 'execution.runtime-mode' = 'STREAMING';",
        "CREATE TABLE a (b INT) PARTITIONED BY (b) COMMENT 'as it is' LIKE c;",
        "SET pipeline.name = orders;",
        "EXPLAIN STATEMENT SET BEGIN INSERT INTO b SELECT 1; END;",
        "COMPILE PLAN 'p' FOR INSERT INTO b SELECT 1;",
    ],
)
def test_one_job_comes_of_it(before: str, last: str) -> None:
    assert (
        list(
            faults_of(
                statements_of(f"{before}\n{last};"), {"a": "b"} if "RESET" not in before else {}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("sql", "fact"),
    [
        (SOURCE, "line 1: no statement starts a job"),
        ("", "line 1: no statement starts a job"),
        (f"{INSERT};\n{INSERT}", "line 2: INSERT INTO starts a job beside that of line 1"),
        (
            f"{INSERT};\nBEGIN STATEMENT SET; {INSERT}; END;",
            "line 2: EXECUTE STATEMENT starts a job beside that",
        ),
        (
            f"{INSERT};\nDROP TABLE a",
            "line 2: DROP TABLE stands behind the statement that starts the job",
        ),
        (
            f"SELECT * FROM a;\n{INSERT}",
            "line 1: SELECT FROM does not belong to the start of a job",
        ),
        (f"(SELECT 1);\n{INSERT}", "line 1: that does not belong"),
        (f"TABLE a;\n{INSERT}", "line 1: TABLE A does not belong"),
        (f"DELETE FROM a;\n{INSERT}", "line 1: DELETE FROM does not belong"),
        (f"CALL sys.compact('a');\n{INSERT}", "line 1: CALL SYS does not belong"),
        (
            f"CREATE TABLE b AS SELECT 1;\n{INSERT}",
            "line 1: CREATE TABLE ... AS starts a job of its own",
        ),
        (
            f"CREATE OR REPLACE TABLE b WITH ('a'='b') AS SELECT 1;\n{INSERT}",
            "line 1: CREATE TABLE ... AS starts",
        ),
        (f"REPLACE TABLE b AS SELECT 1;\n{INSERT}", "line 1: REPLACE TABLE does not belong"),
        (
            f"CREATE MATERIALIZED TABLE b AS SELECT 1;\n{INSERT}",
            "line 1: CREATE MATERIALIZED TABLE starts",
        ),
        (f"RESET;\n{INSERT}", "line 1: RESET takes back what the spec says of the job"),
        (f"RESET 'b.c';\n{INSERT}", 'line 1: RESET takes back "b.c", which the spec sets'),
        (f"SET 'b.c' = '2';\n{INSERT}", "line 1: SET \"b.c\": the spec sets it to '1'"),
        (f"SET b.c = 2;\n{INSERT}", "line 1: SET \"b.c\": the spec sets it to '1'"),
        (f"SET 'execution.state-recovery.path' = 's3://a';\n{INSERT}", "is said by stateshift"),
        (f"SET /* so */ 'execution.savepoint.path' = 's3://a';\n{INSERT}", "is said by stateshift"),
        (f"SET '$internal.pipeline.job-id' = '00';\n{INSERT}", "is said by stateshift"),
        (f"SET 'table.dml-sync' = 'true';\n{INSERT}", "is said by stateshift"),
        (f"SET 'execution.runtime-mode' = 'batch';\n{INSERT}", "is a streaming one"),
        (f"SET 'table.exec.uid.generation' = 'always';\n{INSERT}", "other uids each time"),
        (f"SET 'rest.port' = '8081';\n{INSERT}", "where it runs is said by the cluster"),
        (f"SET 'execution.target' = 'local';\n{INSERT}", "where it runs is said by the cluster"),
    ],
)
def test_what_does_not_become_one_job_of_ours_is_refused(sql: str, fact: str) -> None:
    faults = list(faults_of(statements_of(sql), {"b.c": "1"}))
    assert len(faults) == 1
    assert fact in faults[0].message and faults[0].expected


def test_what_the_spec_sets_may_be_set_to_the_same() -> None:
    assert list(faults_of(statements_of(f"SET 'b.c' = 'it''s'; {INSERT}"), {"b.c": "it's"})) == []


def test_flinks_lines_are_told_as_those_of_the_file() -> None:
    (statement,) = statements_of("-- a\n\n  INSERT INTO b\nSELECT c")
    assert statement.line == 3
    told = "From line 2, column 8 to line 2, column 9: Column 'c' not found"
    assert (
        statement.in_file(told) == "From line 4, column 8 to line 4, column 9: Column 'c' not found"
    )


@pytest.mark.parametrize(
    "key",
    [
        "execution.state-recovery.claim-mode",
        "execution.savepoint-restore-mode",
        "execution.savepoint.ignore-unclaimed-state",
        "$internal.anything",
    ],
)
def test_what_is_ours_to_say_is_nobody_elses(key: str) -> None:
    assert refused_setting(key, "x") is not None
    assert refused_setting("pipeline.max-parallelism", "8") is None
