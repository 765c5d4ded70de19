"""The OpenAPI document is valid, so that clients can be generated from it."""

import json
import os
import unittest
import urllib.request

from openapi_spec_validator import OpenAPIV31SpecValidator


class OpenApiDocument(unittest.TestCase):
    def test_the_document_is_valid(self):
        address = os.environ["RELSERVE_BASE_URL"].removesuffix("/v1")
        with urllib.request.urlopen(f"{address}/openapi.json") as reply:
            document = json.load(reply)
        self.assertEqual(document["openapi"], "3.1.0")
        errors = [f"{list(error.absolute_path)}: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
        self.assertEqual(errors, [])

    def test_every_body_is_described_field_by_field_or_in_words(self):
        address = os.environ["RELSERVE_BASE_URL"].removesuffix("/v1")
        with urllib.request.urlopen(f"{address}/openapi.json") as reply:
            document = json.load(reply)
        bodies = [
            (method, path, operation["requestBody"])
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if "requestBody" in operation
        ]
        self.assertGreater(len(bodies), 20)
        for method, path, body in bodies:
            self.assertTrue(body.get("description"), f"{method} {path}")


if __name__ == "__main__":
    unittest.main()
