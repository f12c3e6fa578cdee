"""Measure how fast a trace becomes `messages.nc`, and how large the file is.

Shows, of a synthetic trace of 600,000 messages (100,000 calls) or of a `--record`: messages per CPU second (user +
system, all threads) of parsing, `trace.bin.zst` to columns, of which so much unpacks zstd and checks the SHA-256, of
writing `messages.nc`, and of both; medians of `--repeat`. Bytes per message on disk, and those of a file without any.
Imports and numba's compilation, which is cached on disk, are not counted.
Reach: 10,000,000 messages per CPU second, 13 bytes per message of a measured run; see docs/data-format.md.
"""

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import synthetic

from sipsched.files import zstd_pieces
from sipsched.records.messages import messages_from_record, write_messages
from sipsched.records.record import TRACE_FILE


def cpu_seconds(action: Callable[[], Any], repeat: int) -> float:
    """Do it and give the median CPU time that it took, in seconds; the first time does not count."""
    action()
    found = []
    for _ in range(repeat):
        before = time.process_time()
        action()
        found.append(time.process_time() - before)
    return statistics.median(found)


def unpack(trace: Path) -> None:
    """Do what no parser can do without: unpack the trace, and compare what it is."""
    hashlib.sha256(trace.read_bytes()).digest()
    for _ in zstd_pieces(trace, "trace", ""):
        pass


def main() -> None:
    """Parse and write one record, print the medians."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--calls", type=int, default=100_000)
    arguments.add_argument("--record", type=Path, help="a measured run's; else a synthetic one")
    arguments.add_argument("--repeat", type=int, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        record = options.record or synthetic.write_record(
            Path(scratch), synthetic.Run(), calls=options.calls
        )
        output = Path(scratch) / "messages.nc"
        ds = messages_from_record(record)
        unpacked = cpu_seconds(lambda: unpack(record / TRACE_FILE), options.repeat)
        parsed = cpu_seconds(lambda: messages_from_record(record), options.repeat)
        write_messages(ds.isel(message=slice(0), drop=slice(0)), output)
        empty = output.stat().st_size
        written = cpu_seconds(lambda: write_messages(ds, output), options.repeat)
        n = ds.sizes["message"]
        for name, seconds in (
            ("unpacked", unpacked),
            ("parsed", parsed),
            ("written", written),
            ("parsed and written", parsed + written),
        ):
            print(
                f"{name}: {n / seconds / 1e6:.2f} million messages per CPU second "
                f"({1e9 * seconds / n:.0f} ns a message, median of {options.repeat})"
            )
        size = output.stat().st_size
        print(
            f"messages.nc of {n} messages: {size / n:.2f} bytes per message, {(size - empty) / n:.2f} beside "
            f"the {empty} bytes of one without any; trace.bin.zst: "
            f"{(record / TRACE_FILE).stat().st_size / n:.2f}"
        )


if __name__ == "__main__":
    main()
