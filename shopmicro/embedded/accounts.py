"""Running a command as another user, for servers that refuse to run as root."""

import os
import pwd
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from shopmicro.embedded.errors import EmbeddedError

CANDIDATES = ("postgres", "nobody")

SWITCH = """
import os, sys
uid, gid, *command = sys.argv[1:]
os.setgroups([]); os.setgid(int(gid)); os.setuid(int(uid)); os.execv(command[0], command)
"""


def unprivileged(command: Sequence[str | Path]) -> list[str]:
    """The command, made to run as an unprivileged user if this process is root's."""
    words = [str(word) for word in command]
    if os.geteuid() != 0:
        return words
    account = unprivileged_account()
    if not shutil.which("setpriv"):
        return [sys.executable, "-c", SWITCH, str(account.pw_uid), str(account.pw_gid), *words]
    # Root's home is often closed to others. The capability, which access(2) heeds only with that secure bit,
    # opens it to a server whose program or data is in there.
    return [
        "setpriv",
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        "--securebits=+no_setuid_fixup",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
        "--",
        *words,
    ]


def give(paths: Iterable[Path]) -> None:
    """Let the unprivileged user own the paths, if this process is root's."""
    if os.geteuid() != 0:
        return
    account = unprivileged_account()
    for path in paths:
        os.chown(path, account.pw_uid, account.pw_gid)


def unprivileged_account() -> pwd.struct_passwd:
    """The account that root's servers run under."""
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    for name in CANDIDATES:
        if name in accounts:
            return accounts[name]
    raise EmbeddedError(
        "root may not run PostgreSQL, and there is no user 'nobody': run this as another user"
    )
