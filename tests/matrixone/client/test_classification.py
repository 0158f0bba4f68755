import pickle
import ssl

import pymysql
import pytest

from ccpr.matrixone.client import errors
from ccpr.matrixone.client.classification import classify

LIST = "__++__internal_object_list s - sys p"
CREATE = "CREATE SNAPSHOT IF NOT EXISTS `s` FOR DATABASE `d` FROM `sys` PUBLICATION `p`"
SELECT = "SELECT 1"


def _error(number: int, text: str) -> pymysql.err.MySQLError:
    return pymysql.err.OperationalError(number, text)


@pytest.mark.parametrize(
    ("number", "text", "statement", "expected"),
    [
        (
            20101,
            "internal error: tenant acc2 user u is not allowed to execute publication internal command object_list",
            LIST,
            "NotPermitted",
        ),
        (
            20101,
            "internal error: account sys does not have permission to access publication acc1.p1",
            LIST,
            "NotPermitted",
        ),
        (20101, "internal error: account 'acc3' is not allowed to access publication 'p1'", SELECT, "NotPermitted"),
        (20101, "internal error: do not have privilege to execute the statement", CREATE, "NotPermitted"),
        (20101, "internal error: publication acc1.p1 does not exist", LIST, "PublicationMissing"),
        (
            20101,
            "internal error: failed to query snapshot: find 0 snapshot records by name(s), expect only 1",
            LIST,
            "SnapshotGone",
        ),
        (20101, "internal error: failed to resolve against snapshot 'x'", LIST, "StatementFailed"),
        (
            20101,
            "internal error: failed to resolve against snapshot 'x': find 0 snapshot records by name(x)",
            LIST,
            "SnapshotGone",
        ),
        (20101, "internal error: snapshot s does not exist", "DROP SNAPSHOT s", "SnapshotGone"),
        (22101, "stale read, min TS is 5-0, receive 3-0", LIST, "StaleRead"),
        (
            20405,
            "file 01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000 is not found",
            "__++__internal_get_object",
            "ObjectGone",
        ),
        (1105, "internal error: panic not implemented: \ngoroutine 1 [running]", LIST, "PartitionedTable"),
        (20101, "internal error: invalid table name d.a.b", "CREATE SNAPSHOT s FOR TABLE d `a.b`", "PartitionedTable"),
        (20101, "internal error: external table is not supported", "__++__internal_get_ddl", "UnsupportedTable"),
        (20101, "internal error: cluster table is not supported", "__++__internal_get_ddl", "UnsupportedTable"),
        (1062, "Duplicate entry 's' for key 'sname'", CREATE, "SnapshotExists"),
        (20307, "Duplicate entry '(s)' for key '(sname)'", CREATE, "SnapshotExists"),
        (
            20101,
            "internal error: feature SNAPSHOT with scope database has reached the limit of 50",
            CREATE,
            "SnapshotLimit",
        ),
        (20101, "internal error: database my db does not exist", CREATE, "DatabaseMissing"),
        (1049, "Unknown database d", SELECT, "DatabaseMissing"),
        (20101, "internal error: failed to get database: ExpectedEOB", LIST, "DatabaseMissing"),
        (20101, "internal error: failed to get database: rpc timeout", LIST, "UpstreamBusy"),
        (20101, "internal error: table d.t does not exist", CREATE, "TableMissing"),
        (1146, 'no such table "d"."t"', SELECT, "TableMissing"),
        (1064, "SQL parser error: You have an error in your SQL syntax", SELECT, "StatementUnknown"),
        (20301, "invalid input: invalid internal object list command format", LIST, "StatementUnknown"),
        (1045, "Access denied for user 'u'. internal error: check password failed", "connect", "AccessDenied"),
        (20101, "internal error: there is no tenant acc9", "connect", "AccessDenied"),
        (20101, "internal error: the role r has not been granted to the user u", "connect", "AccessDenied"),
        (1040, "Too many connections", SELECT, "UpstreamBusy"),
        (1213, "Deadlock found when trying to get lock", SELECT, "UpstreamBusy"),
        (1213, "Deadlock found when trying to get lock", CREATE, "SnapshotOutcomeUnknown"),
        (20642, "GC is running, please retry later", SELECT, "UpstreamBusy"),
        (20101, "internal error: context deadline exceeded", SELECT, "UpstreamBusy"),
        (20101, "internal error: context deadline exceeded", CREATE, "SnapshotOutcomeUnknown"),
        (2013, "Lost connection to MySQL server during query", LIST, "ConnectionLost"),
        (2006, "MySQL server has gone away", SELECT, "ConnectionLost"),
        (2013, "Lost connection to MySQL server during query (timed out)", CREATE, "SnapshotWaits"),
        (2013, "Lost connection to MySQL server during query", CREATE, "SnapshotOutcomeUnknown"),
        (2013, "Lost connection to MySQL server during query", "drop snapshot if exists s", "SnapshotOutcomeUnknown"),
        (2003, "Can't connect to MySQL server on 'h' (timed out)", CREATE, "UpstreamUnreachable"),
        (2026, "SSL is required but the server doesn't support it", "connect", "TlsFailed"),
        (20101, "internal error: something new", SELECT, "StatementFailed"),
    ],
)
def test_number_and_text_decide_the_class(number: int, text: str, statement: str, expected: str):
    error = classify(_error(number, text), statement)
    assert type(error).__name__ == expected
    assert error.number == number
    assert error.text == " ".join(text.split())
    assert error.remedy
    assert error.code != "CCPR"


def test_the_remedy_for_an_account_that_is_not_listed_is_the_statement_to_run():
    text = "internal error: account sys does not have permission to access publication acc1.p1"
    assert "As admin of account acc1: ALTER PUBLICATION p1 ACCOUNT ADD sys." in str(classify(_error(20101, text), LIST))
    own = "internal error: account sys does not have permission to access publication sys.p1"
    assert "ALTER PUBLICATION p1 ACCOUNT ALL." in str(classify(_error(20101, own), LIST))


def test_the_remedy_for_a_missing_publication_is_the_statement_to_run():
    error = classify(_error(20101, "internal error: publication acc1.p1 does not exist"), LIST)
    assert "CREATE PUBLICATION p1 DATABASE <database> ACCOUNT sys" in error.remedy


def test_a_lost_connection_while_connecting_has_executed_nothing():
    error = classify(_error(2013, "Lost connection"), CREATE, connecting=True)
    assert isinstance(error, errors.UpstreamUnreachable)


def test_a_certificate_that_fails_is_terminal_and_a_hang_up_is_not():
    failed = _error(2003, "Can't connect")
    failed.original_exception = ssl.SSLCertVerificationError("certificate verify failed")  # type: ignore[attr-defined]
    assert isinstance(classify(failed, "connect", connecting=True), errors.TlsFailed)
    failed.original_exception = ssl.SSLEOFError("EOF")  # type: ignore[attr-defined]
    assert isinstance(classify(failed, "connect", connecting=True), errors.UpstreamUnreachable)


def test_an_error_without_a_number_counts_as_a_connection_out_of_step():
    assert isinstance(
        classify(pymysql.err.InternalError("Packet sequence number wrong - got 4 expected 2"), LIST),
        errors.ConnectionLost,
    )


def test_passwords_in_statements_and_texts_are_masked():
    statement = "CREATE DATABASE d FROM 'mysql://sys#root:se:cr@et@10.0.0.1:6001' sys PUBLICATION p"
    error = classify(_error(1064, "syntax error near 'mysql://sys#root:se:cr@et@10.0.0.1:6001'"), statement)
    assert "et@" not in str(error)
    assert "mysql://sys#root:***@10.0.0.1:6001" in error.text
    error = classify(_error(20101, "x"), "CREATE ACCOUNT a ADMIN_NAME 'u' IDENTIFIED BY 'se''cret' OPEN")
    assert "cret" not in str(error)


def test_long_texts_and_statements_are_cut():
    error = classify(_error(20101, "x" * 5000), "SELECT " + "y" * 5000)
    assert len(str(error)) < 1500


def test_an_error_crosses_a_process_border_with_all_its_parts():
    error = classify(_error(20101, "internal error: something new"), SELECT)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.number, copy.text) == (type(error), str(error), error.number, error.text)
