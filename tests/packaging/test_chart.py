"""The chart renders, under several values, to objects that Kubernetes would take and that fit each other."""

import base64
import json
import pathlib
import re
import tempfile
import tomllib
import unittest

import chart
from packages import CHART, HERE, accepted, documented_keys, helm

# What the values say that somebody else makes, by their file.
OUTSIDE = {
    "external-database": {"relserve-secrets"}, "tls": {"relserve-tls"}, "vllm": {"hub"}, "ingress": {"registry", "sheets"},
    "replicas": {"vllm"}, "off": {"default"},
}
# Values that are refused, and what the refusal names.
REFUSED = {
    "gateways=0": "/gateways",
    "gateway=2": "'gateway'",
    "gateways=many": "/gateways",
    "image.tag=latest": "/image/tag",
    "image.pullPolicy=Sometimes": "/image/pullPolicy",
    "listenAddress=127.0.0.1": "/listenAddress",
    "config.srver.workers=1": "'srver'",
    "config.server.listen=0.0.0.0:80": "/config/server/listen",
    "config.server.health_listen=0.0.0.0:80": "/config/server/health_listen",
    "config.server.certificate=x": "/config/server/certificate",
    "config.auth.admin_key=x": "/config/auth/admin_key",
    "config.store.database=x": "/config/store/database",
    "config.store.node=x": "/config/store/node",
    "config.sql.listen=x": "/config/sql/listen",
    "config.replicas[0].api_key=in-clear": "/config/replicas/0/api_key",
    "config.discovery.replica.api_key=in-clear": "/config/discovery/replica/api_key",
    "postgres.enabled=false": "gateways: more than one need a database",
    "postgres.storage=much": "/postgres/storage",
    "postgres.password=a b": "postgres.password",
    "database.url=postgres://a": "database.url: names another database while postgres.enabled",
    "database.url=mysql://a": "database.url: must begin with postgres://",
    "database.inSecret=true": "database.inSecret: needs secret.existing",
    "secret.adminKey=short": "secret.adminKey",
    "secret.existing=a,secret.adminKey=a-key-of-16-chars": "secret.existing: has the secrets",
    "vllm.enabled=true,config.model.name=x": "config.model.name: is vllm.model",
    "vllm.replicas=-1": "/vllm/replicas",
    "vllm.user=0": "/vllm/user",
    "service.port=0": "/service/port",
    "tls.secretName=x": "'secretName'",
    "ingress.enabled=true": "/ingress/hosts",
    "podDisruptionBudget.maxUnavailable=0": "/podDisruptionBudget/maxUnavailable",
    "resources.request.cpu=1": "'request'",
}


class Chart(unittest.TestCase):
    def in_each(self, check):
        for name in chart.cases():
            with self.subTest(values=name or "defaults"):
                self.assertEqual(check(name, chart.rendered(name)), [])

    def test_helm_finds_nothing_wrong_with_it(self):
        for name in chart.cases():
            values = ["--values", str(HERE / "values" / f"{name}.yaml")] if name else []
            with self.subTest(values=name or "defaults"):
                code, said = helm("lint", "--strict", str(CHART), *values)
                self.assertEqual(code, 0, said)

    def test_objects_are_those_of_kubernetes(self):
        self.in_each(lambda _, objects: chart.against_schemas(objects) + chart.twice(objects))

    def test_selectors_pick_pods(self):
        self.in_each(lambda _, objects: chart.selectors(objects))

    def test_ports_are_there(self):
        self.in_each(lambda _, objects: chart.ports(objects))

    def test_what_is_named_is_there(self):
        self.in_each(lambda name, objects: chart.references(objects, OUTSIDE.get(name, ())))

    def test_nothing_is_root_or_tells_a_secret(self):
        self.in_each(lambda _, objects: chart.safety(objects))

    def test_the_configuration_is_valid_and_fits(self):
        self.in_each(lambda _, objects: chart.configuration(objects))

    def test_the_program_accepts_the_configuration(self):
        # What the variables hold; those of values/replicas.yaml too.
        environment = {
            "RELSERVE_NODE": "relserve-0", "RELSERVE_ADMIN_KEY": "a-key-for-this-test", "VLLM_KEY": "a-key",
            "RELSERVE_DATABASE_URL": "postgres://u:p@h/d", "SHOP": "sqlite://shop.db",
        }
        with tempfile.TemporaryDirectory() as folder:
            for name in chart.cases():
                path = pathlib.Path(folder, f"{name}.toml")
                path.write_text(chart.toml_of(chart.rendered(name)))
                with self.subTest(values=name or "defaults"):
                    answer = accepted(path, environment)
                    if answer is None:
                        self.skipTest("RELSERVE_BIN names no program")
                    self.assertEqual(answer[0], 0, answer[1])

    def test_values_reach_the_configuration_unchanged(self):
        config = tomllib.loads(chart.toml_of(chart.rendered("replicas")))
        self.assertEqual(config["model"]["name"], 'a "quoted" name with a \\ and <angles>')
        self.assertEqual(config["replicas"][1]["prompt_price"], 0.25)
        self.assertEqual(config["sql"]["sources"], {"shop.eu": "${SHOP}"})
        self.assertEqual([model["name"] for model in config["models"]], ["other", "third"])
        limits = tomllib.loads(chart.toml_of(chart.rendered("external-database")))["limits"]
        self.assertEqual(limits, {"body_bytes_max": 10737418240}, "whole numbers stay whole, null is left out")
        vllm = tomllib.loads(chart.toml_of(chart.rendered("vllm")))
        self.assertEqual(vllm["discovery"]["replica"], {"dialect": "vllm", "priority": True, "rows_max": 76, "salt": True})
        self.assertEqual(vllm["discovery"]["dns"], "relserve-vllm.sheets.svc.cluster.local.")

    def test_values_reach_the_objects(self):
        counts = {one["metadata"]["name"]: one["spec"]["replicas"] for one in chart.of_kind(chart.rendered("vllm"), "StatefulSet")}
        self.assertEqual(counts, {"relserve": 2, "relserve-postgres": 1, "relserve-vllm": 3})
        off = {chart.title(one) for one in chart.rendered("off")}
        self.assertEqual(off, {"ConfigMap relserve", "Secret relserve", "Service relserve", "Service relserve-pods", "StatefulSet relserve"})
        ingress, = chart.of_kind(chart.rendered("ingress"), "Ingress")
        self.assertEqual([rule["host"] for rule in ingress["spec"]["rules"]], ["sheets.example.org", "sheets.example.com"])

    def test_secrets_are_made_by_chance_or_given(self):
        def secret(name):
            found, = chart.of_kind(chart.rendered(name), "Secret")
            return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

        by_chance, other = secret(None), secret("vllm")
        self.assertNotEqual(by_chance["admin-key"], other["admin-key"], "no default")
        self.assertIn(by_chance["database-password"], by_chance["database-url"])
        given = secret("database-url")
        self.assertEqual(given["admin-key"], "an-example-of-a-key")
        self.assertTrue(given["database-url"].endswith("sslmode=require"))
        self.assertEqual(chart.of_kind(chart.rendered("external-database"), "Secret"), [])

    def test_values_that_cannot_work_are_refused_by_name(self):
        for values, named in REFUSED.items():
            with self.subTest(values=values):
                code, said = helm("template", "relserve", str(CHART), "--set", values)
                self.assertNotEqual(code, 0)
                self.assertIn(named, said)

    def test_the_schema_knows_each_value_and_each_section(self):
        schema = json.loads((CHART / "values.schema.json").read_text())
        values, = chart.parsed((CHART / "values.yaml").read_text())
        self.assertEqual(set(values), set(schema["properties"]) - {"global"})
        sections = {name.split(".")[0] for name in documented_keys()}
        self.assertEqual(set(schema["properties"]["config"]["properties"]), sections)

    def test_the_notes_name_what_is_there(self):
        for name in chart.cases():
            values = ["--values", str(HERE / "values" / f"{name}.yaml")] if name else []
            with self.subTest(values=name or "defaults"):
                code, said = helm("install", "relserve", str(CHART), "--dry-run=client", "--namespace", "sheets", *values)
                self.assertEqual(code, 0, said)
                notes = said.split("NOTES:")[1]
                objects = chart.rendered(name)
                for kind, one in [("StatefulSet", r"statefulset/([\w-]+)"), ("Service", r"service/([\w-]+)")]:
                    for found in re.findall(one, notes):
                        self.assertIsNotNone(chart.named(objects, kind, found), notes)
                self.assertNotIn("<no value>", notes)


if __name__ == "__main__":
    unittest.main()
