"""Holds Cargo.lock against RustSec's advisories, where `cargo deny check advisories` cannot fetch them.

    git clone https://github.com/rustsec/advisory-db DIR
    python3 tests/advisories/check.py DIR          # exit code 1 where one is known that deny.toml does not name
    python3 -m doctest tests/advisories/check.py   # its own tests

An advisory that deny.toml names, with its reason, is printed and no failure; one that it names and that is none of Cargo.lock
any more is a failure, too. No other program is needed.
"""

import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).parents[2]


def version(text):
    """A version as something that can be compared: what is before a release is smaller than it.

    >>> version("1.2.3") < version("1.10.0") and version("1.0.0-rc.2") < version("1.0.0-rc.10") < version("1.0.0+7")
    True
    """
    text = text.split("+")[0]
    core, _, early = text.partition("-")
    numbers = [int(part) for part in core.split(".")]
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in early.split(".")]
    return (tuple(numbers + [0] * (3 - len(numbers))), (0, parts) if early else (1, []))


def meets(found, wanted):
    """Whether a version is among those that Cargo reads a requirement as.

    >>> [meets("0.3.27", wanted) for wanted in (">= 0.4.16", "< 0.4, >= 0.3", "^0.3.2", "0.2", "=0.3.27", "*")]
    [False, True, True, False, True, True]
    >>> [meets(found, "~1.2.3") for found in ("1.2.2", "1.2.9", "1.3.0")], [meets(found, "^1.2") for found in ("1.9.0", "2.0.0")]
    ([False, True, False], [True, False])
    """
    return all(_meets(version(found), part.strip()) for part in wanted.split(","))


def _meets(found, wanted):
    sign, text = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*(.+)", wanted).groups()
    if text == "*":
        return True
    bound = version(text.replace(".*", ""))
    if sign in (">=", "<=", ">", "<", "="):
        return {">=": found >= bound, "<=": found <= bound, ">": found > bound, "<": found < bound}.get(sign, found == bound)
    given, (major, minor, patch) = len(text.split("-")[0].split(".")), bound[0]
    if sign == "~":
        beyond = (major, minor + 1, 0) if given > 1 else (major + 1, 0, 0)
    elif major or given < 2:
        beyond = (major + 1, 0, 0)
    else:
        beyond = (0, minor + 1, 0) if minor or given < 3 else (0, 0, patch + 1)
    return bound <= found and found[0] < beyond


def advisories(folder):
    for file in sorted(pathlib.Path(folder).glob("crates/*/RUSTSEC-*.md")):
        text = file.read_text()
        written = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S).group(1))
        if not written["advisory"].get("withdrawn"):
            yield written, re.search(r"^# (.*)$", text, re.M).group(1)


def main(folder):
    locked = tomllib.loads((HERE / "Cargo.lock").read_text())["package"]
    packages = {(package["name"], package["version"]) for package in locked if "source" in package}
    named = tomllib.loads((HERE / "deny.toml").read_text())["advisories"]["ignore"]
    reasons = {one["id"]: one["reason"] for one in named}
    looked, found, fails = 0, set(), 0
    for written, title in advisories(folder):
        looked += 1
        advisory, versions = written["advisory"], written.get("versions", {})
        sound = versions.get("patched", []) + versions.get("unaffected", [])
        for name, locked_version in sorted(packages):
            if name != advisory["package"] or any(meets(locked_version, wanted) for wanted in sound):
                continue
            found.add(advisory["id"])
            reason = reasons.get(advisory["id"])
            fails += reason is None
            kind = advisory.get("informational", "vulnerability")
            print(f"{advisory['id']} {name} {locked_version} ({kind}): {title}\n    {reason or 'NOT NAMED in deny.toml'}")
    for gone in sorted(reasons.keys() - found):
        fails += 1
        print(f"{gone}: deny.toml names it, and nothing in Cargo.lock has it")
    print(f"{looked} advisories, {len(packages)} packages: {len(found)} known, {fails} failures")
    if looked == 0:
        sys.exit(f"{folder} has no advisories")
    return fails > 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
