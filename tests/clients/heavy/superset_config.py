"""Superset's configuration for the test: nothing is cached, and its own tables are in memory."""

SECRET_KEY = "of a test"
SQLALCHEMY_DATABASE_URI = "sqlite://"
NOTHING = {"CACHE_TYPE": "NullCache"}
CACHE_CONFIG = DATA_CACHE_CONFIG = NOTHING
FILTER_STATE_CACHE_CONFIG = EXPLORE_FORM_DATA_CACHE_CONFIG = NOTHING
