"""Test the words, the metrics and the page of a watched proxy."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from watched import document, restart, second, workers

from sipsched.analysis.headroom import Headroom, Lack
from sipsched.analysis.watched import Cause, ShownCause, findings, total
from sipsched.pages.headroom import LACKS, sentences
from sipsched.pages.watched import (
    _ledger,
    advice,
    advice_lines,
    headroom_of,
    lines_of,
    metrics,
    write_page,
)
from sipsched.paths import PROJECT_ROOT
from sipsched.records.messages import messages_from_record
from sipsched.records.watch import bins_of

RECORD = PROJECT_ROOT / "recorded/fit/local/kamailio-udp/default/cores~1/threads~8/cps~1600/rep~1"
SAMPLE = re.compile(r'^sipsched_[a-z_]+(\{[a-z]+="[^"]*"\})? -?[0-9.e+-]+$')


def test_lines_show_rates_times_drops_and_workers() -> None:
    text = "\n".join(lines_of(second(drops={"socket buffer full": 3}, lost=2, length_s=0.5)))
    for expected in ("200 calls/s", "400 messages/s", "INVITE 200", "socket buffer full 3"):
        assert expected in text
    for expected in (
        "2 records lost",
        "2 workers busy 30 % (20, 40)",
        "queue 0 bytes (at most 1\u202f280)",
        "backup 5 %",
        "p50/p99/p99.9",
    ):
        assert expected in text


def test_many_workers_are_a_range() -> None:
    assert (
        "(10, 90, 10, 10, 10, 10, 10, 10)"
        in lines_of(second(workers=workers(0.1, 0.9, *[0.1] * 6)))[-1]
    )
    assert "(10 to 90)" in lines_of(second(workers=workers(0.1, 0.9, *[0.1] * 7)))[-1]


def test_lines_of_an_idle_a_stopped_and_an_unrecorded_second() -> None:
    idle = lines_of(second(messages={}, calls=0, waiting=[], service=[], workers=(), others=()))
    assert "no worker has received a message" in idle[-1]
    assert "is not running" in lines_of(second(processes=0))[0]
    assert "400 datagrams/s" in lines_of(second(recording=False))[0]


def test_metrics_are_text_of_prometheus() -> None:
    values = {"cpu_stolen": 0.25, "connections": 7, "unmatched": 4}
    seconds = [second(drops={"socket buffer full": 2}, **values)] * 2
    seconds.append(second(drops={"socket buffer full": 2}, recording=False, **values))
    text = metrics(seconds, total(seconds))
    lines = text.splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.match(line) for line in samples), samples
    assert 'sipsched_messages_total{name="INVITE"} 300' in lines
    assert 'sipsched_drops_total{cause="socket buffer full"} 6' in lines
    assert 'sipsched_other_programs_cpu_seconds_total{program="backup"} 0.15' in lines
    for sample in (
        "unmatched_messages_total 12",
        "recorded_seconds_total 2",
        "cpu_stolen_ratio 0.25",
    ):
        assert f"sipsched_{sample}" in lines
    for sample in ("tcp_connections 7", "recording 0"):
        assert f"sipsched_{sample}" in lines
    (waiting,) = [line for line in samples if 'waiting_seconds{quantile="0.99"}' in line]
    assert abs(float(waiting.split()[-1]) - 50e-6) < 1e-6
    named = {line.split("{")[0].split()[0] for line in samples}
    assert named <= {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert text.endswith("\n")
    assert "sipsched_messages_total" in metrics([], total([]))


def test_every_cause_has_evidence_and_a_command_of_the_program() -> None:
    values = {"busy": 0.9, "cpu_busy": 0.9, "wait_us": 100.0, "workers": 4, "off_cpu": 0.6}
    values |= {
        "used": 0.9,
        "drops": 5,
        "bytes": 300_000,
        "share": 0.5,
        "cpus": 2,
        "hottest": 0.95,
        "connections": 3,
        "times": 40,
        "throttled_s": 1.5,
    }
    found = [ShownCause(cause, 3, 10, values, "backup") for cause in Cause]
    for program, setting in (("kamailio", "children=N"), ("opensips", "udp_workers=N")):
        written = advice(found, program)
        assert all(each.cause and "3 of 10 seconds" in each.evidence for each in written)
        assert any(setting in each.command for each in written)
    (burst,) = [each for each in written if "bursts" in each.cause]
    # the recommended buffer is twice the largest queue, rounded up to a power of two, and at least 1 MiB
    assert "net.core.rmem_max=1048576" in burst.command
    assert all(each.command for each in advice(found, "other"))


def test_advice_without_enough_data_says_why() -> None:
    assert "No advice: 1 seconds" in advice_lines([second()], "kamailio")[0]
    few = second(workers=workers(0.95, 0.97), cpu_busy=0.5, waiting=bins_of(np.full(9, 2e6)))
    assert findings([few] * 20)[0]
    assert "too few workers" in advice_lines([few] * 20, "kamailio")[0]


def test_page_is_written_with_and_without_data(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    seconds = [second(t_s=float(i)) for i in range(12)]
    sums = total(seconds)
    write_page(page, document(not_written=3), seconds, None, sums, headroom_of(None, sums))
    text = page.read_text()
    assert "--histograms" in text
    for expected in ("table-times.csv", "figure-seconds", "table-ledger.csv", "worker 12"):
        assert expected in text
    off = [second(recording=False, messages={}, workers=())]
    write_page(page, document(messages=0), off, None, total(off), headroom_of(None, total(off)))
    assert "The probe recorded no message in any second" in page.read_text()


def test_the_page_says_why_the_cost_of_the_probe_is_unknown(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    seconds = [second(t_s=float(i)) for i in range(12)]
    sums = total(seconds)

    def text(**changes: Any) -> str:
        write_page(page, document(**changes), seconds, None, sums, headroom_of(None, sums))
        return page.read_text()

    assert "<code>fab watch --cpu</code>" in text()
    for unmeasured in ({"cpu_limit": 0.01}, {"udp_ports": [], "tcp_port": 5060}):
        assert "<code>fab watch --cpu</code>" not in text(**unmeasured)
    assert "comparable seconds" in text(cpu_limit=0.01)
    assert "per UDP datagram" in text(udp_ports=[], tcp_port=5060, cpu_limit=0.01)


def test_nothing_printed_about_a_restart_is_negative_or_not_a_number(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    down, *_ = restart()
    for recording in (True, False):
        around = [second(recording=True), second(recording=False), second(recording=recording)] * 6
        seconds = [*around, *(replace(each, recording=recording) for each in restart()), *around]
        silent = [replace(down, recording=recording)] * 12
        for watched in (seconds, silent, silent + around):
            sums = total(watched)
            lines = [line for each in watched for line in lines_of(each)]
            lines += advice_lines(watched, "kamailio")
            lines += metrics(watched, sums).splitlines()
            write_page(page, document(), watched, None, sums, headroom_of(None, sums))
            shown = re.sub(r"(?s)<(style|script).*?</\1>|<[^>]*>", " ", page.read_text())
            for text in (*lines, shown):
                assert not re.search(r"\bnan\b|\binf\b|[ (][-−]\d", text)


def test_headroom_of_a_watch_is_known_or_has_a_reason() -> None:
    ds = messages_from_record(RECORD)
    watched = total([second()])
    buffer = {"receive_buffer_bytes": 524_288}
    found = headroom_of(ds.assign_attrs(buffer), watched)
    assert isinstance(found, Headroom)
    assert found.poisson > 1
    assert found.messages == ds.sizes["message"]
    assert "unknown" not in " ".join(sentences(found))
    assert "--buffer" in str(headroom_of(ds, watched))
    for messages, sums, lack in (
        (ds.isel(message=slice(0)), watched, Lack.MESSAGES),
        (ds.assign_attrs(transport="udp+tcp"), watched, Lack.STREAM),
        (ds, total([second(), second(recording=False)]), Lack.BREAKS),
    ):
        assert LACKS[lack] in str(headroom_of(messages, sums))


@pytest.mark.parametrize(
    ("changes", "rest"),
    [
        ({}, 200),
        ({"drops": {"socket buffer full": 30, "CPU backlog full": 4}}, 200),
        ({"over_tcp": 50}, 250),
        ({"datagrams": 199}, -1),
        ({"recording": False, "messages": {}}, 400),
    ],
)
def test_ledger_balances(changes: Mapping[str, Any], rest: int) -> None:
    sums = total([second(**changes)] * 3)
    rows = {name: number_of(text) for name, text in _ledger(document(), sums).rows}
    (remaining,) = [number for name, number in rows.items() if name.startswith("rest")]
    drops = sum(number for name, number in rows.items() if name.startswith("dropped"))
    assert remaining == 3 * rest
    assert drops == 3 * sum(changes.get("drops", {}).values())
    assert (
        rows["datagrams that arrived"]
        == rows["received by the proxy as a message"] + drops + remaining
    )


def number_of(text: str) -> int:
    return int(re.sub(r"[^-\d]", "", text.replace("\u2212", "-")))
