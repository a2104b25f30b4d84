from collections.abc import Iterator

import pytest

from shopmicro.messaging.tests.scene import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A topic, a group, and consumers that are closed in the end."""
    scene = Scene()
    yield scene
    for consumer in scene.consumers:
        consumer.close()
