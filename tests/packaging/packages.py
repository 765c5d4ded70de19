"""What the tests of packaging/ share: where things are, how a chart is rendered, and what the configuration knows."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
# Another root has the same folders: breaks.py makes one in which something is broken.
ROOT = pathlib.Path(os.environ.get("RELSERVE_ROOT", HERE.parent.parent))
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm" / "relserve"
# Beside the interpreter where install.sh could put it, else on the path.
TOOLS = pathlib.Path(sys.prefix) / "bin"


def tool(name):
    own = TOOLS / name
    return str(own) if own.exists() else name


def run(*command, **options):
    """Runs a command; its code and all that it said."""
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120, **options)
    return done.returncode, done.stdout + done.stderr


def helm(*arguments):
    """Runs helm without a cluster and without what it may find in the user's folders."""
    environment = {**os.environ, "KUBECONFIG": os.devnull, "HOME": str(TOOLS / "nowhere")}
    return run(tool("helm"), *arguments, env=environment)


class StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that stands twice in a map, of which YAML would take the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"twice in one map: {sorted(twice)}", node.start_mark)
        return super().construct_mapping(node, deep)


def parsed(text):
    """All objects of a stream of YAML, without empty ones."""
    return [found for found in yaml.load_all(text, StrictLoader) if found is not None]


@functools.cache
def documented_keys():
    """Keys of docs/CONFIGURATION.md by section; a section of `[[replicas]]` is called `replicas`."""
    sections, current = {}, None
    for line in (ROOT / "docs" / "CONFIGURATION.md").read_text().splitlines():
        if title := re.fullmatch(r"## `\[+([a-z_.]+)\]+`", line):
            current = sections.setdefault(title[1], set())
        elif current is not None and (key := re.match(r"\| `([a-z_0-9]+)` \|", line)):
            current.add(key[1])
    # These two sections say "Keys are those of ..." in place of a table.
    sections["models.replicas"] = sections["replicas"]
    sections["models.discovery"] = sections["discovery"]
    sections["models.discovery.replica"] = sections["discovery.replica"]
    return sections


# A free table: its keys are whatever names an operator gives.
FREE = {"sql.sources"}


def unknown_keys(table, place=""):
    """Keys of a configuration that the documentation does not have."""
    found, sections = [], documented_keys()
    for key, value in table.items():
        at = f"{place}.{key}" if place else key
        if at in FREE:
            continue
        inner = value if isinstance(value, list) else [value]
        if at in sections and inner and all(isinstance(one, dict) for one in inner):
            for one in inner:
                found += unknown_keys(one, at)
        elif key not in sections.get(place, ()):
            found.append(at)
    return found


def variables(text):
    """Names that a configuration takes from the environment; those in its comments too."""
    return set(re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", text))


def accepted(path, environment):
    """Whether the real program takes a configuration: None where none is given, else its code and words."""
    program = os.environ.get("RELSERVE_BIN")
    if not program:
        return None
    return run(program, "config", "--config", str(path), env={"PATH": os.environ["PATH"], **environment})
