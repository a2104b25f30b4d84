"""Fixtures of the payments' tests."""

from collections.abc import Iterator

import pytest

from payments.tests.scene import CountingGateway, Scene


@pytest.fixture
def gateway() -> CountingGateway:
    return CountingGateway()


@pytest.fixture
def scene(gateway: CountingGateway) -> Iterator[Scene]:
    scene = Scene(gateway)
    yield scene
    for consumer in scene.consumers:
        consumer.close()
