"""What image.sh asks of the image that it built: alone first, then with Postgres as packaging/compose.yaml has it."""

import http.client
import json
import os
import shlex
import subprocess
import threading
import time
import urllib.error
import urllib.request

ENGINE, NAME, URL, FOLDER = (os.environ[name] for name in ["ENGINE", "NAME", "URL", "FOLDER"])
COMPOSER = shlex.split(os.environ["COMPOSER"])
IMAGE = f"localhost/{NAME}:0.1.0"
# A machine's first start measures its model; compose.yaml gives it ten minutes.
READY_S_MAX = 120
# compose.yaml's stop_grace_period.
STOP_S_MAX = 45
# Measured with a program of the profile `quick`: 489 MB, of which the program is 276. A fifth more is
# the program's growth; beyond it something came in that nobody meant to, a compiler or a model.
SIZE_MB_MAX = 600
ROWS = 4000
# More, so that some are stored and some are not when the gateway is killed.
TICKET_ROWS = 20_000


def called(*command, code=0):
    """Runs a command, whose words are returned; another code than what is expected ends the test."""
    done = subprocess.run(command, text=True, capture_output=True, check=False, cwd=FOLDER, timeout=300)
    assert code is None or done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def engine(*words, **options):
    return called(ENGINE, *words, **options)


def compose(*words, **options):
    return called(*COMPOSER, "--file", "compose.yaml", *words, **options)


def until(what, ask):
    """Asks again and again, until the answer is true."""
    end = time.monotonic() + READY_S_MAX
    while not (answer := ask()):
        assert time.monotonic() < end, f"not within {READY_S_MAX} s: {what}"
        time.sleep(0.2)
    return answer


def healthy(container):
    """Whether the health check that the image or the composition has passes: podman runs it, Docker has run it."""
    if ENGINE.endswith("podman"):
        return subprocess.run([ENGINE, "healthcheck", "run", container], capture_output=True, check=False).returncode == 0
    return engine("inspect", "--format", "{{.State.Health.Status}}", container) == "healthy"


def asked(path, key=None, body=None):
    """What the gateway answers, and None where it does not."""
    request = urllib.request.Request(URL + path, None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer) if answer.headers.get_content_type() == "application/json" else answer.read() or True
    except urllib.error.HTTPError as refused:
        assert refused.code == 503, f"{path}: {refused.code} {refused.read().decode()}"
    except (OSError, http.client.HTTPException):
        pass
    return None


def ready():
    until("/readyz", lambda: asked("/readyz"))


def query(word, rows=ROWS, **more):
    """Rows that no other query has, so that none is answered out of a cache."""
    return {"template": "Is this a complaint? Answer yes or no.\n\n{message}", "max_tokens": 4,
            "rows": [[f"The {word} parcel {row} never came."] for row in range(rows)], **more}


def used(key):
    return sum(day["rows"] for day in asked("/v1/usage?days=2", key)["data"])


def alone():
    """`docker run` as docs/PACKAGES.md has it, with nothing that a container can lose."""
    config = json.loads(engine("image", "inspect", IMAGE))[0]
    assert config["Config"]["User"] == "10001:10001" and config["Config"]["Entrypoint"] == ["relserve"], config["Config"]
    assert "/var/lib/relserve" in config["Config"]["Volumes"] and "8080/tcp" in config["Config"]["ExposedPorts"]
    size_mb = config["Size"] / 1e6
    print(f"image: {size_mb:.0f} MB, {config['Architecture']}")
    assert size_mb <= SIZE_MB_MAX, f"the image has {size_mb:.0f} MB, and may have {SIZE_MB_MAX}"
    container = f"{NAME}-alone"
    engine("run", "--detach", "--name", container, "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
           "--tmpfs", "/tmp", "--volume", f"{container}:/var/lib/relserve", IMAGE)
    until("the image's health check", lambda: healthy(container))
    assert engine("exec", container, "id", "-u") == "10001"
    assert "#sign-in=" in engine("exec", container, "relserve", "sign-in", "--url", URL)
    key = engine("exec", container, "cat", "/var/lib/relserve/first-key")
    assert key.startswith("rs-"), key[:3]
    engine("stop", "--time", str(STOP_S_MAX), container)
    assert engine("inspect", "--format", "{{.State.ExitCode}}", container) == "0"
    engine("start", container)
    until("the health check of a second start", lambda: healthy(container))
    assert engine("exec", container, "cat", "/var/lib/relserve/first-key") == key, "a second start keeps its key"
    engine("rm", "--force", "--volumes", container)
    print("alone: healthy, user 10001, signs in, ends with 0 and starts again")


def stops_with_its_rows(gateway, key):
    """SIGTERM while a relQuery runs: its client gets all rows, and the container ends in time with 0."""
    answers = []
    client = threading.Thread(target=lambda: answers.append(asked("/v1/relqueries", key, query("red"))))
    client.start()
    until("rows that run", lambda: running(key))
    before = time.monotonic()
    engine("stop", "--time", str(STOP_S_MAX), gateway)
    took_s = time.monotonic() - before
    client.join()
    assert answers[0] and answers[0]["progress"] == {"total": ROWS, "done": ROWS, "failed": 0}, answers
    assert engine("inspect", "--format", "{{.State.ExitCode}}", gateway) == "0"
    print(f"SIGTERM: {ROWS} rows done and over in {took_s:.1f} s")
    engine("start", gateway)
    ready()


def running(key):
    with urllib.request.urlopen(urllib.request.Request(
            URL + "/metrics", headers={"Authorization": f"Bearer {key}"}), timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return any(line.startswith("vllm:num_requests_running") and float(line.split()[-1]) > 0 for line in lines)


def loses_nothing(gateway, key):
    """SIGKILL while a ticket's rows run: each is done after the next start, and in the usage once."""
    until("usage that is written", lambda: used(key) >= 2 + ROWS)
    before = used(key)
    pending = asked("/v1/relqueries", key, query("blue", TICKET_ROWS, deadline_ms=300))
    path = f"/v1/relqueries/{pending['ticket']}"
    pending = until("rows that are stored", lambda: (got := asked(path, key)) and got["progress"]["done"] and got)
    assert pending["progress"]["done"] < TICKET_ROWS, "all was over before the kill"
    engine("kill", "--signal", "KILL", gateway)
    until("the end", lambda: engine("inspect", "--format", "{{.State.Running}}", gateway) == "false" or asked("/readyz"))
    engine("start", gateway, code=None)
    ready()
    shown = {row["index"]: row["text"] for row in pending["rows"] if row.get("text")}
    done = until("the ticket's rows", lambda: (got := asked(path, key)) and got["progress"]["done"] == TICKET_ROWS and got)
    assert done["progress"]["failed"] == 0
    texts = {row["index"]: row["text"] for row in done["rows"]}
    assert len(texts) == TICKET_ROWS and all(texts[index] == text for index, text in shown.items()), "a row that was shown changed"
    until("usage of the ticket", lambda: used(key) >= before + TICKET_ROWS)
    assert used(key) == before + TICKET_ROWS, f"{used(key) - before} rows in the usage, of {TICKET_ROWS}"
    print(f"SIGKILL: {len(shown)} rows were shown before, all {TICKET_ROWS} done after, each in the usage once")


def composed():
    """The composition: secrets, Postgres, then the gateway."""
    if ENGINE.endswith("podman"):
        # Podman before 4.6 waits for no service's health: it starts the gateway beside Postgres. That one waits a minute, which
        # a first start of Postgres may take longer than, and podman starts it no more once it has ended.
        compose("up", "--detach", "postgres")
        postgres = engine("ps", "--quiet", "--filter", f"name={NAME}.postgres").split()[0]
        until("Postgres's health check", lambda: healthy(postgres))
    compose("up", "--detach")
    ready()
    gateway = engine("ps", "--quiet", "--filter", f"name={NAME}.gateway").split()[0]
    until("the gateway's health check", lambda: healthy(gateway))
    status = engine("exec", gateway, "cat", "/proc/1/status")
    assert "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "Uid:\t10001" in status, status
    engine("exec", gateway, "sh", "-c", "! touch /of-this-test 2>&1 && touch /tmp/of-this-test")
    assert URL in compose("exec", "-T", "gateway", "relserve", "sign-in", "--url", URL)
    key = engine("exec", gateway, "cat", "/var/lib/relserve/first-key")
    admin = engine("exec", gateway, "cat", "/secrets/admin-key")
    assert asked("/v1/keys", admin), "the key of operators is what secrets.sh made"
    answer = asked("/v1/relqueries", key, query("first", rows=2))
    assert answer["progress"] == {"total": 2, "done": 2, "failed": 0}, answer["progress"]
    print("composed: ready, healthy, no capability, root read-only, signs in, answers a relQuery")

    stops_with_its_rows(gateway, key)
    loses_nothing(gateway, key)


alone()
composed()
print("all of it passed")
