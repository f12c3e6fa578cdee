"""Atomically written files, and readers of JSON and zstd files with clear errors."""

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
"""Sizes of the pieces in which a zstd file is read. These pieces fit into the processor's cache."""
SEAL = "sha256"
"""The last key of a sealed JSON file: the SHA-256 of every byte of the file before this key's line."""
_SEAL_LINE = ' "{}": "{}"\n}}\n'
SEAL_BYTES = len(_SEAL_LINE.format(SEAL, hashlib.sha256().hexdigest()))
_SEALED = re.compile(rf' "{SEAL}": "([0-9a-f]{{64}})"\n}}\n'.encode())


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside a file. At the end of the block, the temporary file replaces the file.

    Parameters
    ----------
    path
        The file; its folder is created. After an error in the block, the file is unchanged.

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
    # on a full disk, netCDF's library only raises RuntimeError: NetCDF: HDF error
    except (OSError, RuntimeError) as error:
        raise StableError(
            f"{path}: cannot write: {error}; {free_bytes(path) >> 20} MiB are free there; "
            "nothing measured before is lost"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, indented by a space per level.

    Raises
    ------
    StableError
        The disk is full or not writable.
    """
    with whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def free_bytes(path: Path) -> int:
    """Return the number of free bytes on the disk of a file or folder. The file or folder need not exist."""
    folder = next(place for place in (path, *path.absolute().parents) if place.exists())
    return shutil.disk_usage(folder).free


def read_json(path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    """Read a JSON file of sipsched.

    Parameters
    ----------
    schema_version
        Required value of the file's `schema_version`; None for a file without this key.
    remedy
        Advice for an unexpected file, for the error's text.

    Raises
    ------
    StableError
        The file is missing, is not JSON, or has another version.
    """
    return _parsed(_bytes_of(path, remedy), path, schema_version, remedy)


def seal(text: str) -> str:
    """Add the key `sha256` to the text of a JSON object.

    Parameters
    ----------
    text
        The object, with at least one key and without `sha256`.

    Returns
    -------
    str
        The same object with `sha256` as its last key. Its value is the SHA-256 of all bytes before the last two lines,
        so `head -c -80 run.json | sha256sum` prints the same value.
    """
    rest = text.rstrip().removesuffix("}").rstrip() + ",\n"
    return rest + _SEAL_LINE.format(SEAL, hashlib.sha256(rest.encode()).hexdigest())


def read_sealed(path: Path, schema_version: int | None, remedy: str) -> dict[str, Any]:
    """Read a JSON file that `seal` made, including the key `sha256`, and check that no byte of it has changed.

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
            f"{path}: its SHA-256 is {digest}, which is not what its last key says: the file was changed "
            f"after it was written; {remedy}"
        )
    return document


def read_seal(path: str) -> str | None:
    """Read only the last key of a sealed file, which identifies the file's content; None without this key.

    `read_sealed` checks that the content is unchanged.
    """
    try:
        # a Path per record would double the time for 36,000 records
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
    """Parse JSON strictly.

    Raises
    ------
    ValueError
        The text does not follow RFC 8259, or a number is beyond the range of a float.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_zstd(path: Path, what: str, remedy: str) -> bytes:
    """Read a complete zstd file: see `zstd_pieces`."""
    return b"".join(zstd_pieces(path, what, remedy))


def zstd_pieces(path: Path, what: str, remedy: str) -> Iterator[bytes]:
    """Read a zstd file piece by piece.

    Parameters
    ----------
    path
        The file.
    what
        Kind of the content, such as `trace`, for the error's text.
    remedy
        Advice for an unexpected file, for the error's text.

    Raises
    ------
    StableError
        The file is missing, is not zstd, is damaged, or ends inside a frame.
    """
    # Imported here, because it takes 35 ms that the start of the workflow does not need.
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
        # Some frames do not state their size. Only a decompressobj reports that such a frame ends early;
        # ZstdDecompressor.decompress and stream_reader do not.
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
