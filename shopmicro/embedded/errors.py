"""What can go wrong, each with its remedy."""


class EmbeddedError(Exception):
    """A server could not be had; the message says in one line what is wrong and what to do about it."""


class PortInUse(EmbeddedError):
    """Something else listens on the port that was asked for."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} of 127.0.0.1 is in use: end what listens there, or choose another port"
        )
