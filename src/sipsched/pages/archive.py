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
from sipsched.paths import TESTBEDS
from sipsched.plan.documents import read_yaml

CHECKSUMS = "SHA256SUMS"
METADATA = "ro-crate-metadata.json"
CONFIGURATION = "configuration.json"
CRATE_VERSION = "1.2"
LICENSE = "https://spdx.org/licenses/MIT"
TESTBED_KEYS = (
    *("name", "kind", "description", "fidelity", "lock_wait_s"),
    *("vm", "virtual", "simulated", "hosts", "tuning"),
)
HOST_KEYS = ("sip_port", "cpus", "helper_cpus")
"""Published keys of a testbed's file; addresses, logins and paths are private."""
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
    """Write the archive; the same files always make the same bytes.

    Parameters
    ----------
    archive
        The zip file; its directory is created. The file is written atomically.
    files
        Files to bundle, relative to the working directory. They keep their paths. A testbed's file loses the addresses
        and logins of its hosts.
    campaigns
        The measured campaigns: testbeds, fidelity and times.
    version
        Version of the code, from `versions.code_version`.
    configuration
        The current configuration, as JSON.

    Raises
    ------
    StableError
        A file is missing or lies outside the working directory, or no run is valid.
    """
    contents = {CONFIGURATION: configuration.encode()}
    for file in files:
        if file.is_absolute() or ".." in file.parts or not file.is_file():
            raise StableError(f"{file}: expected a file under the working directory")
        contents[PurePosixPath(file).as_posix()] = _published(file)
    contents = dict(sorted(contents.items()))
    measured = sorted(time for each in campaigns for time in each.counted["started_at"] if time)
    if not measured:
        raise StableError("no run is valid, so nothing can be published; see reports/index.html")
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
    """Return a file's bytes; a testbed's file loses everything that names a machine or a user."""
    if file.parent != TESTBEDS:
        return file.read_bytes()
    whole_file = read_yaml(file)
    document = {key: whole_file[key] for key in TESTBED_KEYS if key in whole_file}
    for role, host in document.get("hosts", {}).items():
        document["hosts"][role] = {key: host[key] for key in HOST_KEYS if key in host}
    for guest in (document.get("vm", {}), document.get("virtual", {})):
        if "/" in str(guest.get("kernel", "")):
            guest["kernel"] = PurePosixPath(guest["kernel"]).name
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return f"# Without addresses, logins, keys and folders of the hosts.\n{text}".encode()


def _metadata(
    contents: Mapping[str, bytes],
    campaigns: Sequence[Campaign],
    version: str,
    measured: Sequence[str],
) -> bytes:
    """Describe the archive and each of its files in JSON-LD."""
    # imported here, because rocrate loads an HTTP client that nothing else needs
    from rocrate.model import ContextEntity, DataEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(gen_preview=False, version=CRATE_VERSION)
    files = {name: _file(name, data) for name, data in contents.items()}
    files[CHECKSUMS] = {
        "@type": "File",
        "name": CHECKSUMS,
        "encodingFormat": "text/plain",
        "description": "SHA-256 of every other file; check with: sha256sum -c",
    }
    testbeds = ", ".join(each.testbed for each in campaigns)
    root: dict[str, Any] = {
        "name": f"sipsched {version}: SIP proxy measurements on testbed {testbeds}",
        "description": " ".join(
            f"{each.provenance}. {len(each.counted)} of {len(each.runs)} planned runs are valid."
            for each in campaigns
        ),
        "datePublished": measured[-1][:10],
        "license": {"@id": LICENSE},
        "mainEntity": {"@id": "#measurement"},
    }
    for key, value in root.items():
        crate.root_dataset[key] = value
    for name, properties in files.items():
        crate.add(DataEntity(crate, name, properties=properties))
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


def _file(name: str, data: bytes) -> dict[str, str]:
    """Describe a file of the archive."""
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
    return properties | ({"description": description} if description else {})
