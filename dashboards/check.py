#!/usr/bin/env python3
"""Asks a real Prometheus for every panel of every dashboard.

Starts RelServe twice (the built-in model, and a second server with the first one as its replica) and Prometheus, all on loopback
ports and in a temporary directory; loads the recording and alert rules; gives both servers some work; then asks Prometheus for the
expression of every panel, for what vLLM's public dashboard asks, and for the rules' health. Whatever has an error or no series is
printed, and the exit status says so. 3: Prometheus is not installed. Needs `prometheus` (Debian: apt-get install prometheus) and nothing from the network.
"""

import argparse
import glob
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
RATE_INTERVAL = "15s"
LOAD_SECONDS = 12
READY_SECONDS = 60


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fetch(url, body=None):
    """The reply to a GET, or to a POST of JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read()


def until_ready(url, process, log):
    """Waits until a server answers 200; gives up when it has ended or takes too long."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            fetch(url)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    with open(log, encoding="utf-8", errors="replace") as text:
        sys.exit(f"{url} does not answer:\n{text.read()[-2000:]}")


class Programs:
    """What was started, each with its log; ended together."""

    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, name, command, ready):
        log = os.path.join(self.folder, name + ".log")
        with open(log, "wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.running.append(process)
        until_ready(ready, process, log)

    def end(self):
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def start_servers(programs, folder, relserve):
    """A server, and one in front of it; their addresses."""
    back, front = (f"127.0.0.1:{free_port()}" for _ in range(2))
    plain = write(os.path.join(folder, "plain.toml"), '[server]\nmetrics_for_all = true\n[auth]\nmode = "none"\n')
    fleet = write(
        os.path.join(folder, "fleet.toml"),
        '[server]\nmetrics_for_all = true\n[auth]\nmode = "none"\n[model]\nname = "relserve-demo"\n'
        f'[[replicas]]\nname = "a"\nurl = "http://{back}"\ndialect = "vllm"\n',
    )
    for name, address, config in (("back", back, plain), ("front", front, fleet)):
        data = os.path.join(folder, name)
        command = [relserve, "serve", "--config", config, "--listen", address, "--data-dir", data]
        programs.start(name, command, f"http://{address}/readyz")
    return [back, front]


def start_prometheus(programs, folder, program, servers):
    """Prometheus with the rules of this folder; its address."""
    address = f"127.0.0.1:{free_port()}"
    rules = os.path.join(HERE, "prometheus", "rules.yml")
    config = write(
        os.path.join(folder, "prometheus.yml"),
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{json.dumps(rules)}]\n"
        f"scrape_configs:\n  - job_name: relserve\n    static_configs: [{{targets: {json.dumps(servers)}}}]\n",
    )
    data = os.path.join(folder, "series")
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address={address}"]
    programs.start("prometheus", command, f"http://{address}/-/ready")
    return address


def work(servers):
    """Keeps servers busy for some seconds: columns, cells, chats; the same ones again, for the caches; one that is refused."""
    end, count = time.monotonic() + LOAD_SECONDS, 0
    while time.monotonic() < end:
        count += 1
        texts = [f"Film {count}, number {number}: a wonderful evening." for number in range(12)]
        column = {"template": "Is this good or bad?\n\n{text}", "rows": [[text] for text in texts], "max_tokens": 8}
        free = column | {"ignore_eos": True, "cache": False}
        label = column | {"constraint": {"choice": ["good", "bad"]}}
        calls = [{"function": "classify", "args": [text, ["good", "bad"]]} for text in texts]
        chat = {"messages": [{"role": "user", "content": texts[0]}], "max_tokens": 8}
        for server in servers:
            for path, body in (
                ("/v1/relqueries", label),
                ("/v1/relqueries", label),
                ("/v1/relqueries", free),
                ("/v1/cells", {"calls": calls}),
                ("/v1/chat/completions", chat),
            ):
                fetch(f"http://{server}{path}", body)
    return count


class Prometheus:
    """Answers questions, and remembers what was wrong."""

    def __init__(self, address):
        self.address, self.asked, self.wrong = address, 0, []

    def get(self, path, **fields):
        query = urllib.parse.urlencode(fields)
        try:
            return json.loads(fetch(f"http://{self.address}/api/v1/{path}?{query}"))
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def ask(self, what, expression):
        """The expression must have series, and one of them a number."""
        self.asked += 1
        reply = self.get("query", query=expression)
        if reply["status"] != "success":
            self.wrong.append(f"{what}: {reply.get('error')}: {expression}")
            return
        values = [float(series["value"][1]) for series in reply["data"]["result"]]
        if not values:
            self.wrong.append(f"{what}: no series: {expression}")
        elif all(math.isnan(value) for value in values):
            print(f"  no number yet (nothing to divide by): {what}")


def panels(folder):
    """Every expression of every dashboard, its variables filled in."""
    for path in sorted(glob.glob(os.path.join(folder, "grafana", "*.json"))):
        with open(path, encoding="utf-8") as text:
            board = json.load(text)
        for panel in board["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
                for variable in board["templating"]["list"]:
                    expression = re.sub(rf"\${variable['name']}\b", ".*", expression)
                yield f"{os.path.basename(path)}: {panel['title']}", expression
        for variable in board["templating"]["list"]:
            query = re.fullmatch(r"label_values\((\S+), (\w+)\)", variable.get("definition", ""))
            if query:
                yield f"{os.path.basename(path)}: variable {variable['name']}", f'{query[1]}{{{query[2]}!=""}}'


def check_rules(prometheus):
    """Every rule was evaluated well, and what is recorded has series."""
    groups = prometheus.get("rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        if rule["health"] != "ok":
            prometheus.wrong.append(f"rule {rule['name']}: {rule['health']}: {rule.get('lastError')}")
        if rule["type"] == "recording":
            prometheus.ask(f"rule {rule['name']}", rule["name"])
        elif rule["state"] != "inactive":
            prometheus.wrong.append(f"alert {rule['name']} is {rule['state']} on a healthy server")
    return len(rules)


def check_vllm(prometheus):
    """What vLLM's dashboard asks is there, with its labels."""
    with open(os.path.join(HERE, "vllm.toml"), "rb") as text:
        for series in tomllib.load(text)["series"]:
            labels = ", ".join(f'{label}!=""' for label in series["labels"])
            for name in series["names"]:
                prometheus.ask("vLLM's dashboard", f"{name}{{{labels}}}")


def promtool(program):
    """The forms of configuration and rules, and the tests of the alerts."""
    folder = os.path.join(HERE, "prometheus")
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        print(f"promtool {' '.join(arguments)}: well")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--relserve", default=os.path.join(HERE, "..", "target", "release", "relserve"))
    arguments.add_argument("--prometheus", default="prometheus")
    arguments.add_argument("--promtool", default="promtool")
    asked = arguments.parse_args()
    if shutil.which(asked.relserve) is None:
        sys.exit(f"{asked.relserve} is not there")
    for program in (asked.prometheus, asked.promtool):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not there; Debian's package `prometheus` has prometheus and promtool", file=sys.stderr)
            sys.exit(3)
    promtool(asked.promtool)
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(folder)
        try:
            servers = start_servers(programs, folder, asked.relserve)
            prometheus = Prometheus(start_prometheus(programs, folder, asked.prometheus, servers))
            print(f"{work(servers)} rounds of work for {' and '.join(servers)}")
            time.sleep(2)  # the last round is scraped and its rules are evaluated
            for what, expression in panels(HERE):
                prometheus.ask(what, expression)
            check_vllm(prometheus)
            rules = check_rules(prometheus)
        finally:
            programs.end()
    for wrong in prometheus.wrong:
        print(wrong)
    print(f"{prometheus.asked} expressions and {rules} rules, {len(prometheus.wrong)} wrong")
    sys.exit(1 if prometheus.wrong else 0)


if __name__ == "__main__":
    main()
