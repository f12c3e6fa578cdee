"""Package sources and options for mmdebstrap, which builds root file systems of Debian releases."""

import re

NOT_INSTALLED = ("man", "locale", "doc", "info")
"""Folders below /usr/share that a built root file system does not contain, because no program needs them."""


def sources(index_targets: str, suite: str) -> list[str]:
    """Return apt source lines for a Debian release, with the servers that this machine uses.

    Parameters
    ----------
    index_targets
        Output of the command `apt-get indextargets`.
    suite
        Code name of the release, which can differ from the release of this machine.

    Returns
    -------
    list of str
        Lines of a sources.list file; empty if apt knows no Debian source.
    """
    lines: dict[str, None] = {}
    for stanza in index_targets.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Created-By") != "Packages" or fields.get("Component") != "main":
            continue
        uri, signed_by = fields.get("Repo-URI", ""), fields.get("Signed-By", "")
        options = f"[signed-by={signed_by}] " if signed_by.startswith("/") else ""
        ending = {"Debian": "", "Debian-Security": "-security"}.get(fields.get("Label", ""))
        # The suites -updates and -backports also have the label Debian. The hyphen in their code names excludes them.
        plain = "-" not in fields.get("Codename", "-").removesuffix("-security")
        if fields.get("Origin") == "Debian" and ending is not None and plain:
            lines[f"deb {options}{uri} {suite}{ending} main"] = None
    return list(lines)


def mmdebstrap_options(apt_config: str) -> list[str]:
    """Return the command-line options with which mmdebstrap builds a small root file system.

    Parameters
    ----------
    apt_config
        Output of the command `apt-config dump`. Some of apt's settings are necessary to reach the package servers, for
        example through a web proxy. mmdebstrap gets these settings as options, because it does not read apt's files.
    """
    network = [line for line in apt_config.splitlines() if re.match(r"Acquire::https?::", line)]
    settings = ('Apt::Install-Recommends "false"', 'Acquire::Languages "none"', *network)
    return [
        *("--quiet", "--mode=root", "--variant=minbase"),
        *(f"--aptopt={setting}" for setting in settings),
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in NOT_INSTALLED),
    ]
