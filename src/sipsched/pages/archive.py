"""The published archive: reports, summaries, configuration and versions as one RO-Crate.

SEE RO-Crate 1.2, https://w3id.org/ro/crate/1.2
"""

import hashlib
import json
import mimetypes
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from sipsched.analysis.run_table import Campaign
from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.plan.documents import read_yaml

CHECKSUMS = "SHA256SUMS"
METADATA = "ro-crate-metadata.json"
CONFIGURATION = "configuration.json"
CRATE_VERSION = "1.2"
LICENSE = "https://spdx.org/licenses/MIT"
TESTBEDS = Path("hardware", "testbeds")
LOGIN_KEYS = ("address", "port", "user", "identity_file", "known_hosts")
KINDS = {
    ".nc": ("application/x-netcdf", "Summary of all runs of a study on one testbed"),
    ".html": ("text/html", "Report; self-contained"),
    ".lock": ("text/plain", "Every package of the environment, with its hash"),
    ".yaml": ("application/yaml", "What was studied, or what it was measured on"),
    ".yml": ("application/yaml", "The environment, for conda"),
    ".json": ("application/json", ""),
}


def publish(
    archive: Path,
    files: Sequence[Path],
    campaigns: Sequence[Campaign],
    version: str,
    configuration: str,
) -> None:
    """Write the archive; the same files give the same bytes.

    Parameters
    ----------
    archive
        The zip file; its directory is made. It appears whole or not at all.
    files
        What to bundle, relative to the working directory; they keep their paths. Of a testbed's file that
        is left out by which how its hosts are reached.
    campaigns
        What was measured: testbeds, fidelity, and when.
    version
        Of the code, as `versions.code_version` gives it.
    configuration
        The configuration in force, as JSON.

    Raises
    ------
    StableError
        A file is not there, or lies outside the working directory; or no run counts.
    """
    contents = {CONFIGURATION: configuration.encode()}
    for file in files:
        if file.is_absolute() or ".." in file.parts or not file.is_file():
            raise StableError(f"{file}: expected a file under the working directory")
        contents[PurePosixPath(file).as_posix()] = _published(file)
    contents = dict(sorted(contents.items()))
    measured = sorted(time for each in campaigns for time in each.counted["started_at"] if time)
    if not measured:
        raise StableError("no run counts: there is nothing to publish; see reports/index.html")
    contents[METADATA] = _metadata(contents, campaigns, version, measured)
    contents[CHECKSUMS] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(contents.items())
    ).encode()
    moment = datetime.fromisoformat(measured[-1])
    with whole(archive) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in sorted(contents.items()):
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            bundle.writestr(entry, data)


def _published(file: Path) -> bytes:
    """Give a file's bytes; those of a testbed's file without logins, keys and addresses of SSH."""
    if file.parent != TESTBEDS:
        return file.read_bytes()
    document = read_yaml(file)
    for host in document["hosts"].values():
        for key in LOGIN_KEYS:
            host.pop(key, None)
    if "/" in str(document.get("vm", {}).get("kernel", "")):
        document["vm"]["kernel"] = PurePosixPath(document["vm"]["kernel"]).name
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return f"# Without {', '.join(LOGIN_KEYS)}: how hosts are reached.\n{text}".encode()


def _metadata(
    contents: Mapping[str, bytes],
    campaigns: Sequence[Campaign],
    version: str,
    measured: Sequence[str],
) -> bytes:
    """Describe the archive and each of its files in JSON-LD."""
    # Imported here: it brings an HTTP client along, which nothing else here needs.
    from rocrate.model import ContextEntity, DataEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(gen_preview=False, version=CRATE_VERSION)
    testbeds = ", ".join(each.testbed for each in campaigns)
    root: dict[str, Any] = {
        "name": f"sipsched {version}: SIP proxy measurements on testbed {testbeds}",
        "description": " ".join(
            f"{each.provenance}. {len(each.counted)} of {len(each.runs)} planned runs count."
            for each in campaigns
        ),
        "datePublished": measured[-1][:10],
        "license": {"@id": LICENSE},
        "mainEntity": {"@id": "#measurement"},
    }
    for key, value in root.items():
        crate.root_dataset[key] = value
    for name, data in contents.items():
        kind, description = KINDS.get(
            PurePosixPath(name).suffix, (mimetypes.guess_type(name)[0] or "text/plain", "")
        )
        properties = {
            "@type": "File",
            "name": name,
            "encodingFormat": kind,
            "contentSize": str(len(data)),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        if description:
            properties["description"] = description
        crate.add(DataEntity(crate, name, properties=properties))
    crate.add(
        DataEntity(
            crate,
            CHECKSUMS,
            properties={
                "@type": "File",
                "name": CHECKSUMS,
                "encodingFormat": "text/plain",
                "description": "SHA-256 of every other file; check with: sha256sum -c",
            },
        )
    )
    action: dict[str, Any] = {
        "@type": "CreateAction",
        "name": f"Measurement on testbed {testbeds}, and its evaluation",
        "instrument": {"@id": "#code"},
        "object": {"@id": CONFIGURATION},
        "startTime": measured[0],
        "endTime": measured[-1],
        "result": [{"@id": name} for name in contents if name.endswith((".nc", ".html"))],
    }
    code: dict[str, Any] = {
        "@type": "SoftwareSourceCode",
        "name": "sipsched",
        "version": version,
        "programmingLanguage": "Python",
        "license": {"@id": LICENSE},
    }
    licence: dict[str, Any] = {"@type": "CreativeWork", "name": "MIT License"}
    for identity, properties in (("#measurement", action), ("#code", code), (LICENSE, licence)):
        crate.add(ContextEntity(crate, identity, properties=properties))
    return (json.dumps(crate.metadata.generate(), indent=1, ensure_ascii=False) + "\n").encode()
