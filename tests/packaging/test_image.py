"""The Dockerfile and the scripts of the image, without a Docker daemon: nothing is built."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

from packages import PACKAGING, ROOT, accepted, run, tool, unknown_keys

DOCKERFILE = PACKAGING / "Dockerfile"
SCRIPT = PACKAGING / "docker" / "relserve.sh"
# What COPY needs of the repository is tried by its own builds; these are what the program is made of.
NEEDED = ["Cargo.toml", "Cargo.lock", "relserve/src/main.rs", "gateway/build.rs", "serving/known_models.toml", "models/demo"]


def stages():
    """Each stage as its instructions; lines that go on are one."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.M))
    found = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append([])
        if found and word:
            found[-1].append((word, rest.strip()))
    return found


def ignored(path):
    """Whether .dockerignore keeps a path of the repository from the build."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    ends = [path, *map(str, pathlib.PurePosixPath(path).parents)]
    for pattern in patterns:
        bare = pattern.removeprefix("**/")
        for end in ends:
            tails = [end]
            if bare != pattern:
                parts = end.split("/")
                tails = ["/".join(parts[at:]) for at in range(len(parts))]
            if any(fnmatch.fnmatchcase(tail, bare) and tail.count("/") == bare.count("/") for tail in tails):
                return True
    return False


def copied(stage):
    """What a stage copies out of the repository."""
    for word, rest in stage:
        if word == "COPY" and "--from=" not in rest:
            yield from rest.split()[:-1]


class Image(unittest.TestCase):
    def test_the_linter_of_dockerfiles_finds_nothing(self):
        if shutil.which(tool("hadolint")) is None:
            self.skipTest("hadolint is not there")
        code, said = run(tool("hadolint"), "--no-color", str(DOCKERFILE))
        self.assertEqual(code, 0, said)

    def test_what_is_copied_is_there_and_sent(self):
        for stage in stages():
            for source in copied(stage):
                self.assertTrue((ROOT / source).exists(), source)
                self.assertTrue(source == "." or not ignored(source), f"{source} is in .dockerignore")
        for path in NEEDED:
            self.assertTrue((ROOT / path).exists() and not ignored(path), path)
        for path in ["target", ".git", "dashboards/web/node_modules", ".venv-vllm", "tests/packaging/.venv", "addins/dist/page"]:
            self.assertTrue(ignored(path), f"{path} would be sent to the builder")

    def test_stages_copy_from_stages_that_are_there(self):
        names = []
        for stage in stages():
            for word, rest in stage:
                if word == "COPY" and (source := re.search(r"--from=(\S+)", rest)):
                    self.assertIn(source[1], names)
            if named := re.search(r" AS (\S+)$", stage[0][1]):
                names.append(named[1])
        self.assertEqual(names, ["page", "program"])

    def test_the_image_is_small_and_not_root(self):
        last = stages()[-1]
        self.assertRegex(last[0][1], r"^debian:\w+-slim$")
        users = [rest for word, rest in last if word == "USER"]
        self.assertTrue(users and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "as a number, and not 0")
        self.assertIn(f"--uid {users[-1].split(':')[0]} ", str(last))
        after = [word for word, _ in last[[word for word, _ in last].index("USER"):]]
        self.assertNotIn("RUN", after)
        words = [word for word, _ in last]
        for word in ["HEALTHCHECK", "VOLUME", "ENTRYPOINT", "CMD"]:
            self.assertIn(word, words)

    def test_compilers_run_on_the_builders_own_architecture(self):
        for stage in stages()[:-1]:
            self.assertTrue(stage[0][1].startswith("--platform=$BUILDPLATFORM "), stage[0])

    def test_the_toolchain_is_that_of_the_repository(self):
        channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
        self.assertIn(f"ARG RUST={channel}\n", DOCKERFILE.read_text())
        profile = re.search(r"ARG PROFILE=(\w+)", DOCKERFILE.read_text())[1]
        self.assertIn(profile, tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"])

    def test_the_configuration_is_valid_and_fits(self):
        path = PACKAGING / "docker" / "relserve.toml"
        config = tomllib.loads(path.read_text())
        self.assertEqual(unknown_keys(config), [])
        last = dict(stages()[-1])
        self.assertEqual(config["store"]["data_dir"], last["VOLUME"])
        self.assertEqual(config["server"]["listen"].split(":")[1], last["EXPOSE"])
        self.assertIn(f"http://{config['server']['health_listen']}/healthz", last["ENV"])
        answer = accepted(path, {})
        self.assertEqual((answer or (0, ""))[0], 0, answer)

    def test_a_run_whose_build_fails_takes_down_nothing_but_its_own(self):
        """A Docker that writes down what it is asked, and the name of a composition that it is to take down."""
        docker = """#!/bin/sh
            echo "$@" >>"$ASKED"
            [ "$1" != build ] || exit 7
            case "$*" in *" down "*) grep ^name: compose.yaml >>"$ASKED" ;; esac
        """
        tools = ["awk", "bash", "cp", "dirname", "grep", "mktemp", "python3", "realpath", "rm", "sed", "sort"]
        with tempfile.TemporaryDirectory() as folder:
            asked, fake = pathlib.Path(folder, "asked"), pathlib.Path(folder, "docker")
            fake.write_text(docker)
            fake.chmod(0o755)
            for name in tools:
                os.symlink(shutil.which(name), pathlib.Path(folder, name))
            # Nothing else is there, an engine of this machine's least of all.
            environment = {"PATH": folder, "ASKED": str(asked), "TMPDIR": folder}
            script = pathlib.Path(__file__).with_name("image.sh")
            done = subprocess.run(["bash", str(script), str(DOCKERFILE)], env=environment, capture_output=True, check=False)
            self.assertEqual(done.returncode, 7, done.stderr)
            taken_down = re.findall(r"^name: (.*)$", asked.read_text(), flags=re.M)
            self.assertRegex(" ".join(taken_down), r"^relserve-test-\d+$")
            self.assertEqual(sorted(os.listdir(folder)), sorted([*tools, "asked", "docker"]), "nothing is left")

    def test_scripts_are_shell_and_may_run(self):
        for script in PACKAGING.rglob("*.sh"):
            self.assertEqual(run("bash", "-n", str(script)), (0, ""))
        for script in (PACKAGING / "docker").glob("*.sh"):
            self.assertTrue(os.access(script, os.X_OK), script)


class Script(unittest.TestCase):
    """relserve.sh, in front of a program that tells what it was given."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        program = self.folder / "program"
        program.write_text('#!/bin/sh\necho "arguments: $*"\nenv | grep ^RELSERVE_ | sort\n')
        program.chmod(0o755)

    def call(self, *arguments, **environment):
        environment = {"PATH": os.environ["PATH"], "RELSERVE_PROGRAM": str(self.folder / "program"), **environment}
        done = subprocess.run(
            [str(SCRIPT), *arguments], env=environment, text=True, capture_output=True, check=False, timeout=60)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def test_it_names_the_configuration_unless_it_is_named(self):
        self.assertEqual(self.call("serve")[1][0], "arguments: --config /etc/relserve/relserve.toml serve")
        self.assertEqual(self.call("serve", RELSERVE_CONFIG="/a")[1][0], "arguments: --config /a serve")
        self.assertEqual(self.call("--config", "/b", "serve")[1][0], "arguments: --config /b serve")
        self.assertEqual(self.call("--config=/b", "serve")[1][0], "arguments: --config=/b serve")

    def test_secrets_that_are_files_become_variables(self):
        secret = self.folder / "secret"
        secret.write_text("a $(b) 'c' \"d\"\n")
        code, said, _ = self.call("serve", RELSERVE_ADMIN_KEY_FILE=str(secret))
        self.assertEqual(code, 0)
        self.assertIn("RELSERVE_ADMIN_KEY=a $(b) 'c' \"d\"", said)
        self.assertFalse([line for line in said if line.startswith("RELSERVE_ADMIN_KEY_FILE=")])
        code, said, error = self.call("serve", RELSERVE_ADMIN_KEY_FILE=str(self.folder / "none"))
        self.assertEqual((code, said), (1, []))
        self.assertIn("RELSERVE_ADMIN_KEY_FILE: cannot read", error)
        code, _, error = self.call("serve", RELSERVE_ADMIN_KEY_FILE=str(secret), RELSERVE_ADMIN_KEY="x")
        self.assertEqual(code, 1)
        self.assertIn("both set", error)


if __name__ == "__main__":
    unittest.main()
