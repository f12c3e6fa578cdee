"""Files that appear whole or not at all; JSON and zstd files that say what is wrong with them."""

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sipsched.errors import StableError

PACKED_BYTES, UNPACKED_BYTES = 1 << 16, 1 << 20
"""Of a zstd file at a time: what stays in the processor's cache."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a place beside a file to write to; what is there takes the file's place when the block ends.

    Parameters
    ----------
    path
        The file; its folder is made. After an error in the block it is as it was before.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    # netCDF's library says of a full disk no more than RuntimeError: NetCDF: HDF error
    except (OSError, RuntimeError) as error:
        raise StableError(
            f"{path}: cannot write: {error}; {free_bytes(path) >> 20} MiB are free there; "
            "nothing measured before is lost"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def free_bytes(path: Path) -> int:
    """Say how many bytes are free where a file or folder is, or would be."""
    folder = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(folder).free


def read_json(path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    """Read a file of ours in JSON.

    Parameters
    ----------
    path
        The file.
    schema_version
        What its `schema_version` has to be; None for a file that has none.
    remedy
        What to do about a file that is not as expected, for the error's text.

    Raises
    ------
    StableError
        It is missing, is not JSON, or has another version.
    """
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; {remedy}") from None
    except OSError as error:
        raise StableError(f"{path}: cannot read: {error.strerror}; {remedy}") from None
    except json.JSONDecodeError as error:
        raise StableError(f"{path}: line {error.lineno}: not JSON: {error.msg}; {remedy}") from None
    except ValueError as error:
        raise StableError(f"{path}: not JSON: {error}; {remedy}") from None
    if not isinstance(document, dict):
        raise StableError(f"{path}: expected a JSON object; {remedy}")
    found = document.get("schema_version")
    if found != schema_version or isinstance(found, bool):
        raise StableError(
            f"{path}: schema_version: expected {schema_version}, found {found!r:.60}; {remedy}"
        )
    return document


def parse_json(text: str) -> Any:
    """Parse JSON, strictly.

    Raises
    ------
    ValueError
        It is not what RFC 8259 describes, or an object has a key twice, or a number is none that a
        measurement gives: NaN, infinite, or an integer beyond 64 bits.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_twins,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_in_64_bits,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twin!r:.60} is there twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.60} is too large a number")
    return value


def _in_64_bits(text: str) -> int:
    value = int(text) if len(text) < 21 else None
    if value is None or not -(2**63) <= value < 2**64:
        raise ValueError(f"{text:.60} is too large a number")
    return value


def read_zstd(path: Path, what: str, remedy: str) -> bytes:
    """Read a zstd file whole: see `zstd_pieces`."""
    return b"".join(zstd_pieces(path, what, remedy))


def zstd_pieces(path: Path, what: str, remedy: str) -> Iterator[bytes]:
    """Read a zstd file piece by piece.

    Parameters
    ----------
    path
        The file.
    what
        Such as `trace`, for the error's text.
    remedy
        What to do about a file that is not as expected, likewise.

    Raises
    ------
    StableError
        The file is missing, is not zstd, is damaged, or ends inside a frame.
    """
    # Imported here: 35 ms that the workflow's start need not spend.
    import zstandard

    try:
        rest = path.read_bytes()
    except FileNotFoundError:
        raise StableError(f"{path}: no such {what}; {remedy}") from None
    if not rest.startswith(zstandard.FRAME_HEADER):
        expected = zstandard.FRAME_HEADER.hex(" ")
        found = f"it starts with {rest[:4].hex(' ')}" if rest else "it is empty"
        raise StableError(f"{path}: not a zstd file: expected {expected}, {found}; {remedy}")
    length, view = 0, memoryview(rest)
    while view:
        # ZstdDecompressor.decompress and stream_reader give no sign of a frame that stops early
        # when the frame does not state its size; a decompressobj does.
        frame = zstandard.ZstdDecompressor().decompressobj(write_size=UNPACKED_BYTES)
        while view and not frame.eof:
            try:
                piece = frame.decompress(view[:PACKED_BYTES])
            except zstandard.ZstdError as error:
                raise StableError(f"{path}: damaged zstd data: {error}; {remedy}") from None
            view = view[PACKED_BYTES:]
            length += len(piece)
            yield piece
        if not frame.eof:
            raise StableError(
                f"{path}: truncated: the zstd frame has no end after {length} bytes of {what}; {remedy}"
            )
        if frame.unused_data:
            view = memoryview(frame.unused_data + bytes(view))
