"""Packaging a function leaves alone what its user has told cloudpickle."""

from __future__ import annotations

import sys

from pyspark import cloudpickle

from stateshift.live import code


def double(number: int) -> int:
    return 2 * number


def test_a_module_that_the_user_pickles_by_value_stays_so() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        code.package(double)
        assert __name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_module_is_not_pickled_by_value_once_its_function_is_packaged() -> None:
    code.package(double)
    assert __name__ not in cloudpickle.list_registry_pickle_by_value()
