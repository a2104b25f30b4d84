"""Ports of the loopback interface."""

import random
import socket

from shopmicro.embedded.errors import EmbeddedError, PortInUse

# Below the range from which Linux and macOS take the ports of outgoing connections,
# so that a port chosen now is still free when its server starts, or starts again.
CANDIDATES = range(20_000, 32_000)
TRIES = 100


def free_port() -> int:
    """A port that nothing listens on now."""
    for port in random.SystemRandom().sample(CANDIDATES, TRIES):
        if is_free(port):
            return port
    raise EmbeddedError(f"no free port in {TRIES} tries: end some of the servers on this machine")


def require_free(port: int) -> None:
    """Raise PortInUse if something listens on the port."""
    if not is_free(port):
        raise PortInUse(port)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
