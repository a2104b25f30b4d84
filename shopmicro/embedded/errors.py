"""What can go wrong, each with its remedy."""

# What the C library says, and what PostgreSQL adds when a write came out short.
DISK_FULL = ("No space left on device", "Check free disk space")


class EmbeddedError(Exception):
    """A server could not be had; the message says in one line what is wrong and what to do about it."""


class PortInUse(EmbeddedError):
    """Something else listens on the port that was asked for."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} of 127.0.0.1 is in use: end what listens there, or choose another port"
        )


def tells_of_full_disk(output: str) -> bool:
    """Whether a program's output says that its disk is full."""
    return any(words in output for words in DISK_FULL)
