"""What of a record goes into summaries, pages and archives: not who measured, from where, and how hosts are reached."""

import re
from collections.abc import Mapping
from typing import Any

PRIVATE_FACTS = ("address",)
"""Of a host: under which name or address SSH reaches it."""
PRIVATE_FILES = ("/proc/version", "/proc/cmdline")
"""Of a host: who built the kernel on which machine, and what it was booted from. The release is a fact of its own."""

# SEE sipsched.testbed.inventory.HostSpec.__str__
_LOGIN = re.compile(r" ?\([^\s()@]+@[^\s()]+:[0-9]+\)")
_HOME = re.compile(r"(?:/home/[^/\s:;,'\"]+|/Users/[^/\s:;,'\"]+|/root)(?=[/\s:;,'\"]|$)")


def publishable_hosts(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out of the descriptions of a run's hosts what is nobody's business."""
    found = {}
    for role, facts in hosts.items():
        kept = {name: value for name, value in facts.items() if name not in PRIVATE_FACTS}
        if isinstance(kept.get("files"), Mapping):
            kept["files"] = {
                path: text for path, text in kept["files"].items() if path not in PRIVATE_FILES
            }
        found[role] = kept
    return found


def publishable_text(text: str) -> str:
    """Leave logins out of a message, and make home folders `~`."""
    return _HOME.sub("~", _LOGIN.sub("", text))
