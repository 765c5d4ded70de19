"""What the tests share: a client of the server that test.sh starts. What needs none is in test_units and test_flow."""

import os

import pytest

import relserve
from relserve import integrations


@pytest.fixture(scope="session")
def client():
    if "RELSERVE_URL" not in os.environ:
        pytest.skip("no server: test.sh starts one")
    with relserve.Client(progress=False) as client:
        integrations.use(client)
        yield client
    integrations.use(None)
