"""Order of the operator suite; tests/conftest.py adds up and judges what it compared."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # torch's generator walks sets of dtypes; parallel workers must see one order.
    ours = [index for index, item in enumerate(items) if "tests/ops/" in str(item.path)]
    for index, item in zip(ours, sorted((items[i] for i in ours), key=lambda item: item.nodeid), strict=True):
        items[index] = item
