import signal
import sys
from pathlib import Path

from shopmicro.embedded.processes import Child
from tests.servers import eventually

DEAF = """
import sys, time
from shopmicro.messaging.shutdown import Stop
with Stop(within=0.3).on_signals() as stop:
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
"""


def test_a_process_that_cannot_end_in_time_leaves_with_0(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child([sys.executable, "-c", DEAF], log=log) as child:
        eventually(lambda: "ready" in log.read_text())
        child.send(signal.SIGTERM)
        assert child.wait(30) == 0
