"""Workers that come and go, and many orders at once."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.journeys.shop import WORKERS, Shop
from tests.servers import eventually

EVERY_ORDER_ONCE = """
    SELECT count(*), count(*) FILTER (WHERE orders.status <> 'pending'), count(told.id), count(paid.id)
    FROM orders
    LEFT JOIN outbox AS told ON told.event_id = orders.id || ':' || orders.status
    LEFT JOIN payments AS paid ON paid.order_id = orders.id
         AND paid.status = CASE orders.status WHEN 'confirmed' THEN 'succeeded' ELSE 'failed' END"""
"""How many orders there are, how many are terminal, told of as what they are, and paid or not to match."""

TOLD = "SELECT count(*) FROM outbox WHERE type IN ('order.confirmed', 'order.cancelled')"
UNPUBLISHED = "SELECT count(*) FROM outbox WHERE published_at IS NULL"


def all_resolved(shop: Shop, count: int) -> bool:
    return shop.rows("SELECT count(*) FROM orders WHERE status <> 'pending'") == [(count,)]


def test_workers_started_after_their_work_has_piled_up_finish_it(closed_shop: Shop) -> None:
    shop = closed_shop
    shop.start("web")
    orders = [shop.place() for _ in range(50)]
    for worker in ("runrelay", "runpayments", "runrelay", "runsaga"):
        shop.start(worker)
        if worker == "runrelay":
            eventually(lambda: shop.rows(UNPUBLISHED) == [(0,)])
        else:
            topic, group = {
                "runpayments": ("orders", "payment-processor"),
                "runsaga": ("payments", "order-saga"),
            }[worker]
            shop.wait_for_no_lag(group, topic)
        shop.stop(worker)
    assert shop.is_resolved(*orders)
    assert shop.rows(EVERY_ORDER_ONCE) == [(50, 50, 50, 50)]


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_killed_again_and_again_under_load_loses_and_repeats_nothing(
    closed_shop: Shop, worker: str
) -> None:
    shop = closed_shop
    shop.start("web", *WORKERS)
    for _ in range(3):
        for _ in range(20):
            shop.place()
        shop.kill(worker)
        shop.start(worker)
    eventually(lambda: all_resolved(shop, 60), timeout=120)
    assert shop.rows(EVERY_ORDER_ONCE) == [(60, 60, 60, 60)]
    assert shop.rows(TOLD) == [(60,)]


def test_workers_exit_well_within_ten_seconds_of_sigterm(closed_shop: Shop) -> None:
    closed_shop.start(*WORKERS)
    eventually(lambda: all("partitions assigned" in closed_shop.log(worker) for worker in WORKERS[1:]))
    closed_shop.stop(*WORKERS)
    assert all("stopped" in closed_shop.log(worker) for worker in WORKERS)


def test_runworkers_runs_all_workers_and_starts_again_the_one_that_dies(closed_shop: Shop) -> None:
    shop = closed_shop
    shop.start("web", "runworkers")
    first = shop.place()
    eventually(lambda: shop.is_resolved(first))
    (line,) = [
        line for line in shop.log("runworkers").splitlines() if "worker started" in line and "runsaga" in line
    ]
    pid = int(line.split("pid=")[1].split()[0])
    os.kill(pid, signal.SIGKILL)
    second = shop.place()
    eventually(lambda: shop.is_resolved(second), timeout=90)
    assert "worker died" in shop.log("runworkers")


@pytest.mark.long
def test_ten_thousand_orders_all_end_and_each_is_told_once(closed_shop: Shop) -> None:
    shop = closed_shop
    shop.start("web", *WORKERS)
    with ThreadPoolExecutor(8) as customers:
        list(customers.map(shop.place, [77 if number % 10 == 0 else 1 for number in range(10_000)]))
    eventually(lambda: all_resolved(shop, 10_000), timeout=240)
    assert shop.rows(EVERY_ORDER_ONCE) == [(10_000, 10_000, 10_000, 10_000)]
    assert shop.rows(TOLD) == [(10_000,)]
    assert shop.rows("SELECT count(*) FROM orders WHERE status = 'cancelled'") == [(1_000,)]
    eventually(lambda: shop.rows(UNPUBLISHED) == [(0,)])
    assert shop.rows("SELECT count(*) FROM processed_events") == [(10_000,)]
    assert shop.rows("SELECT count(*) FROM dead_letters") == [(0,)]
