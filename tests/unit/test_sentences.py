"""Test that Snakemake still logs the texts that the logger plugin recognises."""

from importlib.util import find_spec
from logging import ERROR, LogRecord
from pathlib import Path

import pytest
from snakemake.exceptions import print_exception
from snakemake.logging import logger

from snakemake_logger_plugin_campaign import sentences

TEXTS = (
    sentences.STOPPING,
    sentences.TERMINATING,
    sentences.DRY_RUN_END,
    *sentences.FAILED_JOBS,
    sentences.NO_BACKUP,
    sentences.SLURM_MEMORY,
)


def source(package: str) -> str:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return "".join(path.read_text() for path in Path(spec.origin).parent.rglob("*.py"))


def record(text: str, **marks: object) -> LogRecord:
    made = LogRecord("snakemake", ERROR, "", 0, text, (), None)
    vars(made).update(marks)
    return made


def test_each_recognised_text_is_a_text_of_snakemake() -> None:
    code = source("snakemake") + source("snakemake_executor_plugin_slurm")
    assert [text for text in TEXTS if text not in code] == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyboardInterrupt(), True), (ValueError("1"), False)],
)
def test_the_log_record_of_an_exception_has_its_name(
    error: BaseException, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[LogRecord] = []
    monkeypatch.setattr(logger, "error", lambda text, extra: records.append(record(text, **extra)))
    print_exception(error)
    assert [sentences.is_interrupt(made) for made in records] == [expected]
    assert sentences.exception(records[0]) == type(error).__name__


def test_repetitions_of_a_terminal_line_are_recognised() -> None:
    assert sentences.is_known(record(f"WorkflowError:\n{sentences.FAILED_JOBS[1]}"))
    assert not sentences.is_known(record("WorkflowError:\nTarget rules may not contain wildcards."))
    error = record("RuleException:\nCalledProcessError in file x", exception="RuleException")
    assert sentences.is_process_error(error)
    assert not sentences.is_process_error(record("CalledProcessError"))
