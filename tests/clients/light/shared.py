"""How the clients' tests reach the server, which run.sh starts."""

import os
import unittest

HOST = os.environ["PGHOST"]
PORT = int(os.environ["PGPORT"])
KEY = os.environ["PGPASSWORD"]
USER = os.environ["PGUSER"]
DATABASE = os.environ["PGDATABASE"]
LABELS = {"positive", "negative", "neutral", "mixed"}
# The rows of reviews.csv: id, review, stars.
ROWS = 5


class Checks(unittest.TestCase):
    """Shows long differences whole."""

    maxDiff = None
