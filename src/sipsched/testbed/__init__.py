"""The three hosts of a run and what brings them up; all SSH of the package is in here."""

from sipsched.testbed.host import CommandResult, Host, Process
from sipsched.testbed.inventory import (
    HostSpec,
    Testbed,
    Tuning,
    load_testbed,
    native_folder,
)
from sipsched.testbed.paths import check_paths
from sipsched.testbed.places import UNDO_FILE
from sipsched.testbed.session import Hosts, open_hosts

__all__ = [
    "UNDO_FILE",
    "CommandResult",
    "Host",
    "HostSpec",
    "Hosts",
    "Process",
    "Testbed",
    "Tuning",
    "check_paths",
    "load_testbed",
    "native_folder",
    "open_hosts",
]
