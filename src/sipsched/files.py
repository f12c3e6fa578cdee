"""Functions that write files atomically, and functions that read JSON and zstd files with clear errors."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sipsched.errors import StableError

PACKED_BYTES, UNPACKED_BYTES = 1 << 16, 1 << 20
"""Sizes in bytes of the compressed and decompressed pieces of a zstd file, which fit into the processor's cache."""
SEAL = "sha256"
"""The last key of a sealed JSON file. The value is the SHA-256 of all bytes before the line with this key."""
_SEAL_LINE = ' "{}": "{}"\n}}\n'
SEAL_BYTES = len(_SEAL_LINE.format(SEAL, hashlib.sha256().hexdigest()))
_SEALED = re.compile(rf' "{SEAL}": "([0-9a-f]{{64}})"\n}}\n'.encode())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces the final file at the end of the `with` block.

    Parameters
    ----------
    path
        Path of the final file. Missing folders are created. After an error in the `with` block, the file is unchanged.

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
    # The netCDF library reports a full disk only as "RuntimeError: NetCDF: HDF error".
    except (OSError, RuntimeError) as error:
        raise StableError(
            f"{path}: cannot write: {error}; {free_bytes(path) >> 20} MiB are free there; "
            "earlier measurements are not affected"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, with an indentation of one space per level.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    with whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def free_bytes(path: Path) -> int:
    """Return the number of free bytes on the disk that contains a path. The path need not exist."""
    folder = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(folder).free


def read_json(path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    """Return the content of a JSON file that sipsched has written, and check the version of the format.

    Parameters
    ----------
    schema_version
        Required value of the key `schema_version`; None for a file without this key.
    remedy
        Advice for the error message, if the file is not as expected.

    Raises
    ------
    StableError
        The file is missing, is not JSON, or has another version.
    """
    return _parsed(_bytes_of(path, remedy), path, schema_version, remedy)


def seal(text: str) -> str:
    """Return the text of a JSON object with the SHA-256 of the text as a last key, so that changes are detectable.

    Parameters
    ----------
    text
        The text of the object, with at least one key and without the key `sha256`.

    Returns
    -------
    str
        The text of the object with `sha256` as its last key. The value is the SHA-256 of all bytes before the last two
        lines. So `head -c -80 run.json | sha256sum` prints the same value.
    """
    rest = text.rstrip().removesuffix("}").rstrip() + ",\n"
    return rest + _SEAL_LINE.format(SEAL, hashlib.sha256(rest.encode()).hexdigest())


def read_sealed(path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    """Return the content of a JSON file with the key `sha256`, and check that no byte has changed.

    Raises
    ------
    StableError
        The file is missing, is not JSON, has another version, or does not match the SHA-256 in its last key.
    """
    data = _bytes_of(path, remedy)
    document = _parsed(data, path, schema_version, remedy)
    seal_line = _SEALED.fullmatch(data[-SEAL_BYTES:])
    digest = hashlib.sha256(data[:-SEAL_BYTES]).hexdigest()
    if seal_line is None or seal_line[1].decode() != digest:
        raise StableError(
            f"{path}: its SHA-256 is {digest}, but its last key has another value: the file was changed "
            f"after it was written; {remedy}"
        )
    return document


def read_seal(path: str) -> str | None:
    """Return the SHA-256 that `seal` added to the end of a JSON file, or None for other files.

    This function does not check the content of the file. `read_sealed` checks the content.
    """
    try:
        # The path is text, because creating 36,000 Path objects would double the time.
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        end = os.pread(descriptor, SEAL_BYTES, max(0, size - SEAL_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    seal_line = _SEALED.fullmatch(end)
    return seal_line[1].decode() if seal_line else None


def _bytes_of(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise StableError(f"{path}: no such file; {remedy}") from None
    except OSError as error:
        raise StableError(f"{path}: cannot read: {error.strerror}; {remedy}") from None


def _parsed(data: bytes, path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    try:
        document = parse_json(data.decode())
    except ValueError as error:
        raise StableError(f"{path}: not JSON: {error}; {remedy}") from None
    if not isinstance(document, dict):
        raise StableError(f"{path}: expected a JSON object; {remedy}")
    version = document.get("schema_version")
    if version != schema_version or isinstance(version, bool):
        raise StableError(
            f"{path}: schema_version: expected {schema_version}, found {version!r:.60}; {remedy}"
        )
    return document


def parse_json(text: str) -> Any:
    """Return the content of a JSON text. Raise an error for everything that RFC 8259 does not allow.

    Raises
    ------
    ValueError
        The text does not follow RFC 8259, or a number is outside the range of a float.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_zstd(path: Path, what: str, remedy: str) -> bytes:
    """Return the whole decompressed content of a zstd file; see `zstd_pieces` for arguments and errors."""
    return b"".join(zstd_pieces(path, what, remedy))


def zstd_pieces(path: Path, what: str, remedy: str) -> Iterator[bytes]:
    """Yield the decompressed content of a zstd file in pieces.

    Parameters
    ----------
    path
        The file.
    what
        Kind of the content, such as `trace`, for error messages.
    remedy
        Advice for the error message, if the file is not as expected.

    Raises
    ------
    StableError
        The file is missing, is not zstd, is damaged, or ends inside a frame.
    """
    # Import zstandard only here, because the import takes 35 ms, and the start of the workflow does not need it.
    import zstandard

    try:
        rest = path.read_bytes()
    except FileNotFoundError:
        raise StableError(f"{path}: no such {what}; {remedy}") from None
    if not rest.startswith(zstandard.FRAME_HEADER):
        expected = zstandard.FRAME_HEADER.hex(" ")
        actual = f"it starts with {rest[:4].hex(' ')}" if rest else "it is empty"
        raise StableError(f"{path}: not a zstd file: expected {expected}, {actual}; {remedy}")
    length, view = 0, memoryview(rest)
    while view:
        # Some zstd frames do not state their size. Only a decompressobj detects that such a frame is incomplete.
        # ZstdDecompressor's methods `decompress` and `stream_reader` do not detect the missing end.
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
