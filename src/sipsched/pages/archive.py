"""The archive that is published: pages, study summaries, configuration and versions, as one Workflow Run Crate.

SEE Workflow Run Crate 0.5, https://w3id.org/ro/wfrun/workflow/0.5, a profile of RO-Crate 1.1
"""

import hashlib
import json
import mimetypes
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from sipsched.analysis.run_table import Campaign
from sipsched.errors import StableError
from sipsched.files import whole
from sipsched.pages.outline import Outline
from sipsched.pages.sources import SUMMARY, valid_runs
from sipsched.paths import TESTBEDS
from sipsched.plan.keys import document_named
from sipsched.plan.run import Run
from sipsched.records.summary_variables import RUN_DIMS

CHECKSUMS = "SHA256SUMS"
METADATA = "ro-crate-metadata.json"
CONFIGURATION = "configuration.json"
CRATE_VERSION = "1.1"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
"""The metadata standards (RO-Crate profiles) to which the archive conforms, with their names and versions."""
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
"""URL of the JSON-LD context with the terms of the profiles. RO-Crate itself does not define these terms."""
WORKFLOW = "Snakefile"
MEASURE = "workflow/scripts/measure_run.py"
LICENSE = "https://spdx.org/licenses/MIT"
TESTBED_KEYS = (
    *("name", "kind", "description", "fidelity", "lock_wait_s"),
    *("vm", "virtual", "simulated", "hosts", "tuning"),
)
HOST_KEYS = ("sip_port", "cpus", "helper_cpus")
"""The keys of a testbed's file that the archive keeps, because they are not private, unlike addresses and logins."""
KINDS = {
    ".nc": ("application/x-netcdf", "Summary of all runs of a study on one testbed"),
    ".html": ("text/html", "Report; self-contained"),
    ".lock": ("text/plain", "Every package of the environment, with its hash"),
    ".yaml": ("application/yaml", "Configuration of a study, a testbed or a proxy"),
    ".yml": ("application/yaml", "The Python environment, as a file for conda"),
    ".smk": ("text/x-python", "Rules of the workflow"),
    ".py": ("text/x-python", "Script of a rule of the workflow"),
    ".json": ("application/json", ""),
}


def publish(
    archive: Path,
    files: Sequence[Path],
    campaigns: Sequence[Campaign],
    outlines: Sequence[Outline],
    version: str,
    configuration: str,
) -> None:
    """Write the zip archive of pages, summaries and configuration. Equal input files produce identical archives.

    Parameters
    ----------
    archive
        The zip file; its directory is created. The file is written atomically.
    files
        Files to bundle, relative to the working directory. The archive keeps the paths of the files. A testbed's file
        loses the addresses and logins of its hosts.
    campaigns
        The measured campaigns, from which the testbeds, the fidelity and the times are taken.
    outlines
        The outlines of the pages, from which the figures are taken.
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
    measured = sorted(
        time for campaign in campaigns for time in campaign.counted["started_at"] if time
    )
    if not measured:
        raise StableError("no run is valid, so nothing can be published; see reports/index.html")
    contents[METADATA] = _metadata(contents, campaigns, outlines, version, measured)
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
    """Return the bytes of a file for the archive. From a testbed's file, omit all data about machines and users."""
    if file.parent != TESTBEDS:
        return file.read_bytes()
    whole_file = document_named("testbed", file.stem, file.parent)
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
    outlines: Sequence[Outline],
    version: str,
    measured: Sequence[str],
) -> bytes:
    """Return the metadata file of the archive: a JSON-LD description of the archive and of each file."""
    # Import rocrate only here, because it loads an HTTP client that no other part of the project needs.
    from rocrate.model import ContextEntity, DataEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(gen_preview=False, version=CRATE_VERSION)
    crate.metadata.extra_contexts.append(TERMS)
    files = {name: _file(name, data) for name, data in contents.items()}
    files[CHECKSUMS] = {
        "@type": "File",
        "name": CHECKSUMS,
        "encodingFormat": "text/plain",
        "description": "SHA-256 of every other file; check with: sha256sum -c",
    }
    testbeds = ", ".join(campaign.testbed for campaign in campaigns)
    root: dict[str, Any] = {
        "name": f"sipsched {version}: SIP proxy measurements on testbed {testbeds}",
        "description": " ".join(
            f"{campaign.provenance}. {len(campaign.counted)} of {len(campaign.runs)} planned runs are valid."
            for campaign in campaigns
        ),
        "datePublished": measured[-1][:10],
        "license": {"@id": LICENSE},
        "conformsTo": _links(PROFILES),
    }
    entities = _workflow(files, version) | _figures(outlines, files)
    runs = {
        name: properties
        for campaign in campaigns
        for name, properties in _runs(campaign, contents, files).items()
    }
    made = _links(name for name in contents if name.endswith((".nc", ".html")))
    execution = {
        "@type": "CreateAction",
        "name": f"Measurement on testbed {testbeds}, and its evaluation",
        "instrument": {"@id": WORKFLOW},
        "agent": {"@id": "#operator"},
        "object": [{"@id": CONFIGURATION}],
        "result": made,
        "startTime": measured[0],
        "endTime": measured[-1],
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }
    actions = {name for name, values in runs.items() if values["@type"] == "CreateAction"}
    root["mentions"] = _links(("#execution", *sorted(actions)))
    for name, properties in files.items():
        crate.add(DataEntity(crate, name, properties=properties))
    for name, properties in (entities | runs | {"#execution": execution}).items():
        crate.add(ContextEntity(crate, name, properties=properties))
    for key, value in (root | {"mainEntity": {"@id": WORKFLOW}}).items():
        crate.root_dataset[key] = value
    return (json.dumps(crate.metadata.generate(), indent=1, ensure_ascii=False) + "\n").encode()


def _links(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"@id": name} for name in names]


def _workflow(files: dict[str, dict[str, Any]], version: str) -> dict[str, dict[str, Any]]:
    """Return JSON-LD entities for the workflow and its parameters. Add descriptions of its main files to `files`."""
    code = {"version": version, "programmingLanguage": {"@id": "#snakemake"}}
    files[WORKFLOW] |= code | {
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        "name": "sipsched",
        "description": "Measures SIP proxies, and makes pages from the measurements.",
        "license": {"@id": LICENSE},
        "input": [{"@id": "#configuration"}],
        "output": [{"@id": "#summaries"}, {"@id": "#pages"}],
        "hasPart": [{"@id": MEASURE}],
    }
    files[MEASURE] |= {
        "@type": ["File", "SoftwareSourceCode"],
        "description": "Measures one run.",
    }
    parameters = {
        "#configuration": ("configuration", [CONFIGURATION]),
        "#summaries": ("summaries", [name for name in files if name.endswith(".nc")]),
        "#pages": ("pages", [name for name in files if name.endswith(".html")]),
    }
    for parameter, (_, examples) in parameters.items():
        for name in examples:
            files[name]["exampleOfWork"] = {"@id": parameter}
    operator = "The operator of the testbeds measured the data and made the archive. The archive names no person."
    return {
        "#snakemake": {
            "@type": "ComputerLanguage",
            "name": "Snakemake",
            "identifier": {"@id": "https://snakemake.github.io"},
            "url": {"@id": "https://snakemake.github.io"},
        },
        "#operator": {
            "@type": "Organization",
            "name": "Operator of the testbeds",
            "description": operator,
        },
        LICENSE: {"@type": "CreativeWork", "name": "MIT License"},
        **{
            profile: {"@type": "CreativeWork", "name": name, "version": number}
            for profile, (name, number) in PROFILES.items()
        },
        **{
            parameter: {
                "@type": "FormalParameter",
                "additionalType": "File",
                "name": name,
                "workExample": _links(examples),
            }
            for parameter, (name, examples) in parameters.items()
        },
    }


def _runs(
    campaign: Campaign, contents: Mapping[str, bytes], files: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return two JSON-LD entities per valid run: the action that measured the run, and the record of the run.

    Also link each study summary in `files` to the records of the study's valid runs.
    """
    entities: dict[str, dict[str, Any]] = {}
    testbed = (TESTBEDS / f"{campaign.testbed}.yaml").as_posix()
    inputs = [CONFIGURATION, *([testbed] if testbed in contents else [])]
    for row in campaign.counted.to_dict("records"):
        run = Run(campaign.testbed, *(row[key] for key in RUN_DIMS))
        name = run.path.as_posix()
        entities[f"#run/{name}"] = {
            "@type": "CreateAction",
            "name": f"Measurement of {run}",
            "instrument": {"@id": MEASURE},
            "agent": {"@id": "#operator"},
            "object": _links(inputs),
            "result": [{"@id": f"#record/{name}"}],
            "startTime": row["started_at"],
            "actionStatus": "http://schema.org/CompletedActionStatus",
        }
        entities[f"#record/{name}"] = {
            "@type": "CreativeWork",
            "name": f"Record of {run}",
            "description": "The record is not in the archive. The SHA-256 of the record's run.json identifies it.",
            "identifier": row["record"],
        }
    for study, summary in zip(campaign.studies, campaign.summaries, strict=True):
        for path in contents:
            if path.endswith(f"/{study}/{campaign.testbed}/{SUMMARY}"):
                names = (run.path.as_posix() for run in valid_runs(summary))
                files[path]["isBasedOn"] = _links(f"#record/{name}" for name in names)
    return entities


def _figures(
    outlines: Sequence[Outline], files: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return a JSON-LD entity per figure of the pages, with links to the study summaries behind the figure."""
    entities: dict[str, dict[str, Any]] = {}
    for outline in outlines:
        summaries = _links(path for path in outline.summaries if path in files)
        for identity in outline.figures:
            entities[f"{outline.page}#{identity}"] = {
                "@type": "ImageObject",
                "name": f"Figure {identity} of {outline.page}",
                "isPartOf": {"@id": outline.page},
                "isBasedOn": summaries,
            }
        if summaries:
            files[outline.page]["isBasedOn"] = summaries
    return entities


def _file(name: str, data: bytes) -> dict[str, Any]:
    """Return the JSON-LD properties of one file of the archive: name, type, size, hash and description."""
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
