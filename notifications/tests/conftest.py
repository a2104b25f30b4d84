"""Fixtures of the notifications' tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from notifications.tests.scene import Scene, SmtpServer
from shopmicro.embedded.ports import free_port


@pytest.fixture
def scene(settings: Any) -> Iterator[Scene]:
    scene = Scene(SmtpServer(free_port()))
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", scene.smtp.port
    scene.smtp.start(scene.mailbox)
    yield scene
    for consumer in scene.consumers:
        consumer.close()
    scene.smtp.stop()
