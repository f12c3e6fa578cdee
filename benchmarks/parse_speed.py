"""Measure how fast a trace becomes `messages.nc`, and how large the file is.

Shows: messages per CPU second (user + system, all threads) from `trace.bin.zst` to a written
`messages.nc`, median of five, and bytes per message on disk, for a synthetic trace of 600,000
messages (100,000 calls). Imports and numba's compilation, which is cached on disk, are not counted.
Required: 2,000,000 messages per CPU second, 16 bytes per message.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import synthetic

from sipsched.records.messages import messages_from_record, write_messages


def cpu_seconds(record: Path, output: Path) -> float:
    """Parse once and return the CPU time it took, in seconds."""
    before = time.process_time()
    write_messages(messages_from_record(record), output)
    return time.process_time() - before


def main() -> None:
    """Write a synthetic record, parse it `--repeat` times, print the medians."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--calls", type=int, default=100_000)
    arguments.add_argument("--repeat", type=int, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        record = synthetic.write_record(Path(scratch), synthetic.Run(), calls=options.calls)
        output = Path(scratch) / "messages.nc"
        cpu_seconds(record, output)
        times = [cpu_seconds(record, output) for _ in range(options.repeat)]
        messages = 6 * options.calls
        middle = statistics.median(times)
        print(
            f"parse: {messages / middle / 1e6:.2f} million messages per CPU second "
            f"(median of {options.repeat}; {messages} messages in {middle:.3f} s, "
            f"{min(times):.3f} to {max(times):.3f} s; required 2)"
        )
        print(
            f"messages.nc: {output.stat().st_size / messages:.2f} bytes per message "
            f"(required at most 16); trace.bin.zst: "
            f"{(record / 'trace.bin.zst').stat().st_size / messages:.2f}"
        )


if __name__ == "__main__":
    main()
