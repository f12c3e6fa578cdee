"""Files that appear whole or not at all; JSON and zstd files that say what is wrong with them."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sipsched.errors import StableError

CHUNK_BYTES = 1 << 22


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
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; {remedy}") from None
    except json.JSONDecodeError as error:
        raise StableError(f"{path}: line {error.lineno}: not JSON: {error.msg}; {remedy}") from None
    except UnicodeDecodeError as error:
        raise StableError(f"{path}: not JSON: {error}; {remedy}") from None
    if not isinstance(document, dict):
        raise StableError(f"{path}: expected a JSON object; {remedy}")
    found = document.get("schema_version")
    if found != schema_version:
        raise StableError(
            f"{path}: schema_version: expected {schema_version}, found {found}; {remedy}"
        )
    return document


def read_zstd(path: Path, what: str, remedy: str) -> bytes:
    """Read a zstd file whole.

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
    pieces = []
    while rest:
        # ZstdDecompressor.decompress and stream_reader give no sign of a frame that stops early
        # when the frame does not state its size; a decompressobj does.
        frame = zstandard.ZstdDecompressor().decompressobj(write_size=CHUNK_BYTES)
        try:
            pieces.append(frame.decompress(rest))
        except zstandard.ZstdError as error:
            raise StableError(f"{path}: damaged zstd data: {error}; {remedy}") from None
        if not frame.eof:
            raise StableError(
                f"{path}: truncated: the zstd frame has no end after "
                f"{sum(map(len, pieces))} bytes of {what}; {remedy}"
            )
        rest = frame.unused_data
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
