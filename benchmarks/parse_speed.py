"""Measure the speed of the conversion of a trace to `messages.nc`, and the size of this file.

The input is a synthetic trace of 600,000 messages (100,000 calls) or a measured `--record`. The benchmark prints
messages per CPU second (user and system, all threads) for four steps: unpacking zstd and computing the SHA-256;
parsing, which includes unpacking; writing `messages.nc`; and parsing with writing. The numbers are medians of
`--repeat` repetitions. The numbers exclude imports and numba's compilation. The benchmark also prints the bytes per
message on disk, and the size of a file without messages. The goals are 10,000,000 messages per CPU second, and 13 bytes
per message of a measured run (docs/data-format.md).
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
    """Return the median CPU time of an action in s, without the first execution, during which numba compiles."""
    action()
    seconds = []
    for _ in range(repeat):
        before = time.process_time()
        action()
        seconds.append(time.process_time() - before)
    return statistics.median(seconds)


def unpack(trace: Path) -> None:
    """Unpack the trace and compute its SHA-256. Every conversion includes these steps."""
    hashlib.sha256(trace.read_bytes()).digest()
    for _ in zstd_pieces(trace, "trace", ""):
        pass


def main() -> None:
    """Parse and write one record several times, and print the medians."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--calls", type=int, default=100_000)
    arguments.add_argument(
        "--record", type=Path, help="record of a measured run; default: a synthetic record"
    )
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
                f"({1e9 * seconds / n:.0f} ns per message, median of {options.repeat})"
            )
        size = output.stat().st_size
        print(
            f"messages.nc of {n} messages: {size / n:.2f} bytes per message, or {(size - empty) / n:.2f} "
            f"without the {empty} bytes of a file without messages; trace.bin.zst: "
            f"{(record / TRACE_FILE).stat().st_size / n:.2f}"
        )


if __name__ == "__main__":
    main()
