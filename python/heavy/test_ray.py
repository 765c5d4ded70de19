"""The stage of Ray Data."""

import os

import pyarrow
import pytest
import ray
import ray.data
from relserve.integrations.ray import RelQueryStage

CHOICES = ["yes", "no"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    # Workers have the sources and the server that this process has.
    names = ("PYTHONPATH", "RELSERVE_URL", "RELSERVE_KEY")
    environment = {name: os.environ[name] for name in names}
    environment["PYTHONPATH"] = os.path.abspath(environment["PYTHONPATH"])
    ray.init(
        num_cpus=2, object_store_memory=128 << 20, include_dashboard=False, runtime_env={"env_vars": environment}
    )
    yield
    ray.shutdown()


@pytest.mark.parametrize("batch_format", ["pyarrow", "pandas", "numpy"])
def test_a_dataset_gets_a_column_of_answers(batch_format):
    dataset = ray.data.from_items([{"review": f"Film {number}"} for number in range(20)])
    found = dataset.map_batches(
        RelQueryStage,
        fn_constructor_kwargs={"template": "Is it good? {review}", "output": "answer", "choice": CHOICES},
        batch_format=batch_format,
        batch_size=10,
        concurrency=1,
    ).take_all()
    assert len(found) == 20 and {row["answer"] for row in found} <= set(CHOICES)


def test_each_batch_is_one_relquery(proxy):
    dataset = ray.data.from_items([{"review": f"Film {number}"} for number in range(30)], override_num_blocks=1)
    found = dataset.map_batches(
        RelQueryStage,
        fn_constructor_kwargs={"template": "Is it good? {review}", "choice": CHOICES, "base_url": proxy.url},
        batch_size=20,
        concurrency=1,
    )
    assert found.count() == 30
    assert sorted(proxy.counts()) == [("/v1/relqueries", 10), ("/v1/relqueries", 20)]


def test_errors_go_to_a_column_of_their_own():
    batch = pyarrow.table({"text": ["word " * 5000, "fine"]})
    found = RelQueryStage("{text}", errors_to="error", max_tokens=2)(batch)
    assert [error is None for error in found.column("error").to_pylist()] == [False, True]
