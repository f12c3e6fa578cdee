"""Test the files that `fab watch` writes, and its server of metrics."""

import errno
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from watched import document, second

import sipsched
from sipsched import watch
from sipsched.analysis.watched import total
from sipsched.errors import StableError
from sipsched.records.messages import write_messages
from sipsched.records.trace import RECORD, ProbeMode, read_trace
from sipsched.records.watch import (
    MESSAGES_FILE,
    SECONDS_FILE,
    TRACE_FILE,
    WATCH_FILE,
    messages_of_watch,
    read_seconds,
    write_watch,
)


def test_a_full_disk_is_one_line_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    said: list[str] = []
    files = watch.Files(tmp_path / "out", said.append)
    files.append(second(), np.zeros(5, RECORD), ProbeMode.EXACT)
    kept = files._trace
    with Path("/dev/full").open("wb", buffering=0) as full:
        files._trace = full
        files.append(second(), np.zeros(7, RECORD), ProbeMode.EXACT)
        files._trace = kept
    files.append(second(), np.zeros(7, RECORD), ProbeMode.EXACT)
    files.close()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert files.not_written == 14
    assert read_trace(tmp_path / "out" / TRACE_FILE).records.size == files.written == 5
    assert len(read_seconds(tmp_path / "out")) == 1


def test_single_messages_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_RECORDS", 10)
    said: list[str] = []
    files = watch.Files(tmp_path / "out", said.append)
    for _ in range(3):
        files.append(second(), np.zeros(8, RECORD), ProbeMode.STREAM)
    files.close()
    assert files.written == 8
    assert files.not_written == 16
    assert len(said) == 1
    assert read_trace(tmp_path / "out" / TRACE_FILE).mode is ProbeMode.STREAM
    assert len((tmp_path / "out" / SECONDS_FILE).read_text().splitlines()) == 3


def test_record_opens_in_python_and_draws_figures(tmp_path: Path) -> None:
    files = watch.Files(tmp_path / "out", print)
    records = np.zeros(300, RECORD)
    records["t_arr"] = np.arange(1, 301) * 1_000_000
    records["t_sip_in"] = records["t_arr"] + np.linspace(1000, 90_000, 300).astype(int)
    records["t_sip_out"] = records["t_sip_in"] + 50_000
    records["kind"], records["tid"] = 1, 7
    files.append(second(), records, ProbeMode.EXACT)
    files.close()
    write_watch(tmp_path / "out" / WATCH_FILE, document())
    write_messages(
        messages_of_watch(tmp_path / "out", document()), tmp_path / "out" / MESSAGES_FILE
    )
    watched = sipsched.open_watched(tmp_path / "out")
    assert watched.messages().sizes["message"] == 300
    assert watched.seconds()["calls"].tolist() == [100]
    for figure in (watched.plot.ccdf(), watched.plot.timeline()):
        assert "<svg" in figure.wide
    with pytest.raises(StableError, match=r"watch\.json"):
        sipsched.open_watched(tmp_path)


def test_lines_that_cannot_be_printed_are_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def print_line(line: str) -> None:
        if line == "lost":
            raise OSError(errno.ENOSPC, "No space left on device")
        printed.append(line)

    terminal = watch.Terminal(print_line)
    for line in ("first", "lost", "lost", "last"):
        terminal(line)
    assert printed == ["first", "last"]
    (error,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in error


def test_existing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StableError, match="--output"):
        watch.Files(tmp_path, print)


def test_metrics_are_served_and_a_used_port_is_an_error() -> None:
    with watch.Metrics(0) as served:
        assert served._server is not None
        port = served._server.server_address[1]
        served.show([second()], total([second()]))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b'sipsched_messages_total{name="INVITE"} 100' in answer.read()
        with pytest.raises(StableError, match=f"--metrics {port}"):
            watch.Metrics(port)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
