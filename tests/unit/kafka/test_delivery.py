"""Which delivery each store can keep, and what is said where it cannot."""

from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.kafka.declaration import DeliveryPromise, delivery_of

STORES = ("kafka", "zookeeper", "transaction", "external")


def test_each_store_has_a_default() -> None:
    assert [delivery_of(None, store, "Billing").value for store in STORES] == [
        "at_least_once",
        "exactly_once",
        "exactly_once",
        "exactly_once",
    ]


@pytest.mark.parametrize("store", STORES)
def test_at_least_once_is_kept_by_every_store(store: str) -> None:
    assert delivery_of("at_least_once", store, "Billing") is DeliveryPromise.AT_LEAST_ONCE


@pytest.mark.parametrize("store", ["kafka", "zookeeper"])
def test_at_most_once_is_kept_where_offsets_can_go_first(store: str) -> None:
    assert delivery_of("at_most_once", store, "Billing") is DeliveryPromise.AT_MOST_ONCE


@pytest.mark.parametrize("store", ["zookeeper", "transaction", "external"])
def test_exactly_once_is_kept_where_offset_and_result_are_stored_together(store: str) -> None:
    assert delivery_of("exactly_once", store, "Billing") is DeliveryPromise.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("delivery", "store", "remedy"),
    [
        ("exactly_once", "kafka", "use offsets='transaction', 'zookeeper' or 'external'"),
        ("at_most_once", "transaction", "use offsets='kafka'"),
        ("at_most_once", "external", "use offsets='kafka'"),
        ("once", "kafka", "use 'at_most_once', 'at_least_once' or 'exactly_once'"),
        (1, "kafka", "delivery=1"),
        (["at_most_once"], "kafka", "is not known"),
        (None, "redis", "use 'kafka', 'zookeeper', 'transaction' or 'external'"),
        (None, None, "offsets=None"),
        (None, ["kafka"], "is not known"),
    ],
)
def test_a_contradiction_is_refused_with_its_remedy(
    delivery: object, store: object, remedy: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        delivery_of(delivery, store, "Billing")  # type: ignore[arg-type]
    assert remedy in str(refused.value)
    assert "of Billing" in str(refused.value)
