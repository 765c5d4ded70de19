"""The unit of systemd: systemd's own tools judge it, where they are."""

import configparser
import pathlib
import shutil
import tempfile
import tomllib
import unittest

from packages import PACKAGING, accepted, run, unknown_keys, variables

FOLDER = PACKAGING / "systemd"
UNIT = FOLDER / "relserve.service"
# From 0, nothing can happen, to 10; what systemd-analyze gives the unit is 1.7.
EXPOSURE_MAX = "2.0"


class Keys(configparser.RawConfigParser):
    optionxform = staticmethod(str)


def unit(path=UNIT):
    found = Keys(strict=False, interpolation=None)
    found.read(path)
    return found


class Unit(unittest.TestCase):
    def setUp(self):
        self.service = unit()["Service"]

    def test_systemd_finds_nothing_wrong(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not there")
        with tempfile.TemporaryDirectory() as folder:
            # With the part for GPUs and without.
            drop_in = pathlib.Path(folder, "relserve.service.d")
            path = pathlib.Path(shutil.copy(UNIT, folder))
            for with_gpu in [False, True]:
                if with_gpu:
                    drop_in.mkdir()
                    shutil.copy(FOLDER / "gpu.conf", drop_in)
                _, said = run("systemd-analyze", "verify", "--man=no", str(path))
                # The program is not installed where this runs; of other units nothing is said here.
                lines = [line for line in said.splitlines() if "relserve" in line and "is not executable" not in line]
                self.assertEqual(lines, [])

    def test_it_may_do_little(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not there")
        threshold = str(int(float(EXPOSURE_MAX) * 10))
        code, said = run("systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={threshold}", str(UNIT))
        if "Unknown" in said or "unrecognized" in said:
            self.skipTest("this systemd-analyze judges running units alone")
        self.assertEqual(code, 0, said[-400:])

    def test_it_is_as_hard_as_it_says(self):
        wanted = {
            "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "CapabilityBoundingSet": "",
            "StateDirectory": "relserve", "Restart": "on-failure", "ExecReload": "/bin/sh -c 'kill -HUP $MAINPID'",
            "LimitCORE": "0",
        }
        self.assertEqual({key: self.service.get(key) for key in wanted}, wanted)
        self.assertNotIn(self.service["User"], ["", "root", "0"])

    def test_it_fits_the_configuration(self):
        path = FOLDER / "relserve.toml"
        config = tomllib.loads(path.read_text())
        self.assertEqual(unknown_keys(config), [])
        self.assertEqual(config["store"]["data_dir"], f"/var/lib/{self.service['StateDirectory']}")
        self.assertGreater(int(self.service["TimeoutStopSec"]) * 1000, config["server"].get("drain_ms_max", 30_000))
        connections = config["server"].get("workers", 2) * config["server"].get("connections_max", 10_000)
        self.assertGreater(int(self.service["LimitNOFILE"]), connections + 1_000)
        # What stands in it as a comment, too.
        whole = tomllib.loads("\n".join(
            line.removeprefix("# ") if " = " in line else line for line in path.read_text().splitlines()))
        self.assertEqual(unknown_keys(whole), [])
        self.assertIn("certificate", whole["server"])
        self.assertEqual(variables(whole["store"]["database"]), {"RELSERVE_DATABASE_PASSWORD"})
        answer = accepted(path, {"RELSERVE_DATABASE_PASSWORD": "x"})
        self.assertEqual((answer or (0, ""))[0], 0, answer)

    def test_its_user_is_made(self):
        lines = [line.split() for line in (FOLDER / "relserve.sysusers.conf").read_text().splitlines()]
        self.assertIn(["u", self.service["User"]], [line[:2] for line in lines])


if __name__ == "__main__":
    unittest.main()
