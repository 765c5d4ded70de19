"""compose.yaml and what lies beside it, without a Docker daemon: its schema is not asked, its parts are."""

import os
import pathlib
import re
import stat
import subprocess
import tempfile
import tomllib
import unittest

from packages import PACKAGING, ROOT, accepted, parsed, unknown_keys, variables

COMPOSE = PACKAGING / "compose.yaml"
TRACES = PACKAGING / "compose.traces.yaml"
# Where Jaeger takes OTLP over HTTP, and shows what it has.
OTLP_PORT, PAGE_PORT = 4318, 16686
SECRETS = PACKAGING / "compose" / "secrets.sh"
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def text(with_replica):
    """The file; with the service of a replica that stands in it as a comment."""
    whole = COMPOSE.read_text()
    return re.sub(r"^  #  (?= *\S)", "  ", whole, flags=re.M) if with_replica else whole


def composition(with_replica=False):
    found, = parsed(text(with_replica))
    return found


def configuration(with_replica):
    """The gateway's configuration; with the sections for a replica that stand in it as comments."""
    whole = (PACKAGING / "compose" / "relserve.toml").read_text()
    return re.sub(r"^#(?=[\[a-z])", "", whole, flags=re.M) if with_replica else whole


class Compose(unittest.TestCase):
    def test_files_and_volumes_are_there(self):
        for with_replica in [False, True]:
            whole = composition(with_replica)
            for name, service in whole["services"].items():
                for volume in service.get("volumes", []):
                    source = volume.split(":")[0]
                    if source.startswith("."):
                        self.assertTrue((PACKAGING / source).is_file(), f"{name}: {source}")
                    else:
                        self.assertIn(source, whole["volumes"], name)
                if "build" in service:
                    root = (PACKAGING / service["build"]["context"]).resolve()
                    self.assertEqual(root, ROOT.resolve())
                    self.assertTrue((root / service["build"]["dockerfile"]).is_file())

    def test_images_are_pinned(self):
        for name, service in composition(True)["services"].items():
            self.assertRegex(service["image"], r":v?\d[\w.-]*$", name)
        version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        self.assertEqual(composition()["services"]["gateway"]["image"], f"relserve:{version}")

    def test_no_secret_stands_in_it(self):
        for name, service in composition(True)["services"].items():
            for variable, value in service.get("environment", {}).items():
                if re.search("PASSWORD|KEY|TOKEN|SECRET|URL", variable) and not variable.endswith("_FILE"):
                    self.assertRegex(value, r"^\$\{[A-Z_]+(:-)?\}$", f"{name}: {variable} has a value or a default")
        self.assertEqual(re.findall(r"://[^/\s:@]+:[^@\s$]+@", text(True) + configuration(True)), [])

    def test_services_wait_for_what_they_need(self):
        services = composition(True)["services"]
        for name, service in services.items():
            for other, how in service.get("depends_on", {}).items():
                self.assertIn(other, services, name)
                self.assertIn(how["condition"], CONDITIONS)
                if how["condition"] == "service_healthy":
                    self.assertIn("healthcheck", services[other], f"{name} waits for {other}'s health for ever")
            if name != "secrets":
                self.assertIn("healthcheck", service, name)
                self.assertEqual(service["restart"], "unless-stopped", name)
            else:
                self.assertNotIn("restart", service, "it ends, and would start again and again")
        self.assertEqual(services["gateway"]["depends_on"]["postgres"]["condition"], "service_healthy")
        self.assertEqual(services["postgres"]["depends_on"]["secrets"]["condition"], "service_completed_successfully")

    def test_ports_are_published_to_this_machine_alone(self):
        for name, service in composition(True)["services"].items():
            for port in service.get("ports", []):
                self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$", name)

    def test_the_configuration_is_valid_and_fits(self):
        gateway = composition()["services"]["gateway"]
        given = {name.removesuffix("_FILE") for name in gateway["environment"]}
        for with_replica in [False, True]:
            config = tomllib.loads(configuration(with_replica))
            self.assertEqual(unknown_keys(config), [])
            self.assertLessEqual(variables(configuration(with_replica)), given)
            self.assertEqual(config["server"]["listen"].split(":")[1], gateway["ports"][0].split(":")[-1])
            self.assertIn(config["server"]["health_listen"], " ".join(gateway["healthcheck"]["test"]))
            mounts = [volume.split(":")[1] for volume in gateway["volumes"]]
            self.assertIn(config["store"]["data_dir"], mounts)
            self.assertIn("@postgres:5432/", config["store"]["database"])
            self.assertLess(config["server"].get("drain_ms_max", 30_000), 1000 * int(gateway["stop_grace_period"].removesuffix("s")))
        replica = composition(True)["services"]["vllm"]
        self.assertEqual(config["discovery"]["dns"], "vllm")
        self.assertEqual(replica["command"][1], config["model"]["name"])
        self.assertNotIn("vllm", composition()["services"])

    def test_the_program_accepts_the_configuration(self):
        environment = {"RELSERVE_ADMIN_KEY": "a-key", "RELSERVE_DATABASE_PASSWORD": "a-password"}
        with tempfile.TemporaryDirectory() as folder:
            for with_replica in [False, True]:
                path = pathlib.Path(folder, "relserve.toml")
                path.write_text(configuration(with_replica))
                answer = accepted(path, environment)
                if answer is None:
                    self.skipTest("RELSERVE_BIN names no program")
                self.assertEqual(answer[0], 0, answer[1])

    def test_traces_go_to_a_service_that_stands_beside_the_gateway(self):
        overlay, = parsed(TRACES.read_text())
        self.assertEqual(sorted(overlay), ["services"])
        self.assertEqual(sorted(overlay["services"]), ["gateway", "jaeger"])
        added = overlay["services"]["gateway"]
        self.assertEqual(sorted(added), ["environment"], "the rest of the gateway stays as it is")
        self.assertNotIn("network_mode", composition()["services"]["gateway"])
        endpoint = re.fullmatch(r"http://([a-z]+):(\d+)", added["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"])
        self.assertIsNotNone(endpoint, added)
        self.assertEqual((endpoint[1], int(endpoint[2])), ("jaeger", OTLP_PORT))
        self.assertNotIn("traces", tomllib.loads(configuration(False)), "what is set there goes before the environment")
        jaeger = overlay["services"]["jaeger"]
        self.assertRegex(jaeger["image"], r":v?\d[\w.-]*$")
        self.assertEqual(jaeger["ports"], [f"127.0.0.1:{PAGE_PORT}:{PAGE_PORT}"])
        self.assertEqual(jaeger["restart"], "unless-stopped")
        dashboards, = parsed((ROOT / "dashboards" / "compose.yaml").read_text())
        self.assertEqual(jaeger["image"], dashboards["services"]["jaeger"]["image"], "one version of it in the tree")

    def test_secrets_are_made_once(self):
        def made(folder, **environment):
            done = subprocess.run(
                ["sh", str(SECRETS), folder], env={"PATH": os.environ["PATH"], **environment},
                text=True, capture_output=True, check=False, timeout=60)
            files = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
            return done.returncode, files, done.stderr

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two, tempfile.TemporaryDirectory() as three:
            code, first, said = made(one)
            self.assertEqual((code, sorted(first)), (0, ["admin-key", "database-password"]), said)
            for value in first.values():
                self.assertRegex(value, r"^[A-Za-z0-9]{32}$")
            self.assertEqual(len(set(first.values())), 2)
            self.assertEqual(made(one)[1], first, "a second start changes nothing")
            self.assertEqual(made(one, POSTGRES_PASSWORD="later")[1], first, "the database has the first one")
            self.assertEqual(stat.S_IMODE(pathlib.Path(one, "admin-key").stat().st_mode), 0o444)
            given = made(two, POSTGRES_PASSWORD="an-example", RELSERVE_ADMIN_KEY="a key of one's own")[1]
            self.assertEqual(given, {"database-password": "an-example", "admin-key": "a key of one's own"})
            code, files, said = made(three, POSTGRES_PASSWORD="a/b@c")
            self.assertEqual((code, files), (1, {}))
            self.assertIn("POSTGRES_PASSWORD", said)


if __name__ == "__main__":
    unittest.main()
