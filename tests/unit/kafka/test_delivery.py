"""Which delivery each store can keep, and what is said where it cannot."""

from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.kafka.declaration import DeliveryPromise, delivery_of


@pytest.mark.parametrize(
    ("store", "kept"),
    [
        ("kafka", "at_least_once at_most_once"),
        ("zookeeper", "exactly_once at_least_once at_most_once"),
        ("transaction", "exactly_once at_least_once"),
        ("external", "exactly_once at_least_once"),
    ],
)
def test_each_store_keeps_some_and_the_first_by_default(store: str, kept: str) -> None:
    names = kept.split()
    assert delivery_of(None, store, "Billing").value == names[0]
    assert [delivery_of(name, store, "Billing") for name in names] == [
        DeliveryPromise(name) for name in names
    ]


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
