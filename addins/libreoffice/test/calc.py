"""
The extension in a real LibreOffice without a screen: installed into a profile of its own, driven over its socket, against a
server of the test's own. Prints what it saw; exits with 1 where that is not what it should be.

    python3 calc.py FOLDER      FOLDER holds the built extension; needs soffice and Python's `uno`
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import uno
from com.sun.star.beans import NamedValue
from com.sun.star.connection import NoConnectException
from com.sun.star.lang import DisposedException

KEY = "rs-toy"
# Anything that takes longer hangs: nothing here waits for a time.
PATIENCE_S = 120
CATALOGUE = {"data": [
    {"name": "ask", "summary": "Answers.", "parameters": [{"name": "prompt", "kind": "text", "optional": False},
                                                          {"name": "context", "kind": "text", "optional": True}]},
    {"name": "classify", "summary": "Labels.", "parameters": [{"name": "text", "kind": "text", "optional": False},
                                                              {"name": "labels", "kind": "list", "optional": False}]},
    {"name": "list", "summary": "Lists.", "parameters": [{"name": "prompt", "kind": "text", "optional": False}]},
]}
PAGES = {"/healthz": {}, "/v1/catalogue": CATALOGUE, "/v1/models": {"data": [{"id": "large"}, {"id": "small"}]},
         "/v1/usage?days=1": {"cells_day_tokens": {"used": 100, "max": 1_000}}}


class Toy:
    """A server that answers the first `held` calls of a request and waits with the others until `release`."""

    def __init__(self):
        self.asked, self.dropped, self.held, self.port = [], threading.Event(), 10**9, 0
        self.release = threading.Event()
        self.open()

    def open(self):
        toy = self
        killed = self.killed = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path.startswith("/v1") and self.headers["Authorization"] != f"Bearer {KEY}":
                    return self.reply(401, {"error": {"message": "unknown or revoked API key"}})
                self.reply(200 if self.path in PAGES else 404, PAGES.get(self.path, {}))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers["Authorization"] != f"Bearer {KEY}":
                    return self.reply(401, {"error": {"message": "unknown or revoked API key"}})
                toy.asked.append(body)
                self.send_response(200)
                self.end_headers()
                try:
                    for index, call in enumerate(body["calls"]):
                        while index >= toy.held and not toy.release.wait(0.05):
                            if killed.is_set():
                                return
                            self.event("", ": waiting")
                        self.event("cell", json.dumps({"index": index, "value": f"about {call['args'][0]}"}))
                    self.event("done", "{}")
                except OSError:
                    toy.dropped.set()

            def event(self, name, data):
                self.wfile.write((f"event: {name}\ndata: {data}\n\n" if name else f"{data}\n\n").encode())
                self.wfile.flush()

            def reply(self, status, body):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kill(self):
        """Goes as a server does that is killed: with its connections."""
        self.killed.set()
        self.server.shutdown()
        self.server.server_close()

    def hold(self, count):
        self.held, self.asked = count, []
        self.release.clear()
        self.dropped.clear()


def until(what, isso):
    """Waits for something; what it was when it never came."""
    end = time.monotonic() + PATIENCE_S
    while not isso():
        if time.monotonic() > end:
            raise SystemExit(f"it never came: {what}")
        time.sleep(0.05)
    print(f"- {what}", flush=True)


class Office:
    """LibreOffice with the extension."""

    def __init__(self, folder, home):
        # As an administrator deploys it for everybody: unpacked. The Extension Manager starts helpers that not every
        # container lets it start.
        shutil.copytree(folder, f"{home}/extensions/relserve.oxt")
        pipe = f"relserve{os.getpid()}"
        self.process = subprocess.Popen(
            ["soffice", "--headless", "--norestore", "--nologo", f"--accept=pipe,name={pipe};urp;",
             f"-env:UserInstallation=file://{home}/profile", f"-env:BUNDLED_EXTENSIONS=file://{home}/extensions"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        local = uno.getComponentContext()
        resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
        found = []

        def connect():
            try:
                found.append(resolver.resolve(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext"))
            except NoConnectException:
                pass
            return bool(found)

        until("LibreOffice runs", connect)
        self.context = found[0]
        self.desktop = self.new("com.sun.star.frame.Desktop")

    def new(self, name):
        return self.context.ServiceManager.createInstanceWithContext(name, self.context)

    def open(self, rows):
        """A sheet of its own with these rows."""
        document = self.desktop.loadComponentFromURL("private:factory/scalc", "_blank", 0, ())
        sheet = document.CurrentController.ActiveSheet
        sheet.getCellRangeByPosition(0, 0, len(rows[0]) - 1, len(rows) - 1).setDataArray(tuple(map(tuple, rows)))
        return document, sheet

    def add(self, function, texts, title):
        given = {"function": function, "column": 0, "title": title, "texts": json.dumps(texts)}
        self.new("org.relserve.Calc").execute(tuple(NamedValue(name, value) for name, value in given.items()))

    def close(self):
        # What is started is a script that starts the program, which may have left its group.
        try:
            self.desktop.terminate()
        except DisposedException:
            pass
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def column(sheet, at, rows):
    return [cell for (cell,) in sheet.getCellRangeByPosition(at, 0, at, rows).getDataArray()]


def main(folder):
    toy = Toy()
    with tempfile.TemporaryDirectory() as home:
        office = Office(folder, home)
        try:
            check(office, toy, home)
        finally:
            office.close()


def check(office, toy, home):
    rows = [["Review", "Stars"]] + [[f"review {i}", i] for i in range(1, 41)]
    document, sheet = office.open(rows)
    try:
        office.add("classify", {"labels": "good, bad"}, "Verdict")
        raise SystemExit("a run without a key")
    except Exception as error:
        assert "No key is set" in str(error), error
    print("- without a key nothing is asked")
    settings = f"{home}/profile/user/relserve.json"
    with open(settings, "w") as file:
        json.dump({"url": f"http://127.0.0.1:{toy.port}", "key": KEY, "model": "small"}, file)

    toy.hold(10)
    office.add("classify", {"labels": "good, bad"}, "Verdict")
    expected = ["Verdict"] + [f"about review {i}" for i in range(1, 11)]
    until("ten of forty answers stand in the sheet, under their title", lambda: column(sheet, 2, 40) == expected + [""] * 30)
    assert [(len(body["calls"]), body["model"]) for body in toy.asked] == [(40, "small")], toy.asked
    office.new("org.relserve.Calc").trigger("stop")
    until("Stop dropped the request on the server", toy.dropped.is_set)
    assert column(sheet, 2, 40) == expected + [""] * 30
    print("- what was answered stays, the rest is blank")

    toy.hold(5)
    office.add("ask", {"prompt": "Is {review} worth {Stars}?"}, "Worth")
    until("five answers of a prompt over two columns", lambda: column(sheet, 3, 5)[1:] == [f"about Is review {i} worth {i}?" for i in range(1, 6)])
    toy.kill()
    toy.held = 10**9
    toy.open()
    until("a server that came back is asked for the rest", lambda: column(sheet, 3, 40)[1:] == [f"about Is review {i} worth {i}?" for i in range(1, 41)])
    assert [len(body["calls"]) for body in toy.asked] == [40, 35]
    document.close(True)
    check_dialogs(office, toy, rows, settings)


def check_dialogs(office, toy, rows, settings):
    """The dialogs with real fields, from this process: without a screen nobody can click, so their buttons' work is called."""
    import relserve

    forms, said = [], []

    def run(form):
        forms.append(form)
        form.control.createPeer(form.create("Toolkit"), None)

    def on(form, name, then):
        form.__dict__.setdefault("clicks", {})[name] = then

    relserve.Form.run, relserve.Form.on = run, on
    document, sheet = office.open(rows)
    calc = relserve.Calc(office.context)
    calc.say = said.append
    toy.hold(10**9)

    calc.trigger("server")
    form = forms.pop()
    field = form.control.getControl
    for key, model, words in [("rs-nobody", "", "does not know this key"), (KEY, "huge", "no such model"), (KEY, "large", "Signed in")]:
        field("key").setText(key)
        field("model").setText(model)
        form.clicks["save"]()
        assert words in field("said").getText(), field("said").getText()
    with open(settings) as file:
        assert json.load(file)["model"] == "large"
    assert os.stat(settings).st_mode & 0o077 == 0, "the key's file is its user's only"
    field("url").setText("http://example.org")
    form.clicks["save"]()
    assert "must begin with https" in field("said").getText()
    print("- server and key are tried before they are kept, where nobody else reads them")

    calc.trigger("column")
    form = forms.pop()
    field = form.control.getControl
    assert [name.split(":")[0] for name in field("what").getItems()] == ["ask", "classify"]
    field("text0").setText("Why?")
    form.clicks["add"]()
    assert "names no column" in field("seen").getText()
    field("text0").setText("Why {Review}?")
    form.clicks["try"]()
    until("five rows to look at", lambda: field("seen").getText().split("\n") == [f"about Why review {i}?" for i in range(1, 6)])
    assert column(sheet, 2, 1) == ["", ""]
    form.clicks["add"]()
    until("then all", lambda: column(sheet, 2, 40) == ["ask"] + [f"about Why review {i}?" for i in range(1, 41)])
    assert toy.asked[-1]["model"] == "large"

    long, sheet = office.open([["Review"]] + [[f"text {i}"] for i in range(1_200)])
    toy.hold(10**9)
    questions = []
    for answer in (False, True):
        calc = relserve.Calc(office.context)
        calc.asks = lambda words: questions.append(words) or answer
        calc.trigger("column")
        form = forms.pop()
        form.control.getControl("text0").setText("{Review}")
        form.clicks["add"]()
        assert bool(toy.asked) is answer or answer
    assert "Ask 1,200 cells?" in questions[0] and "900 tokens are left" in questions[0], questions
    until("1,200 cells, once they were allowed", lambda: column(sheet, 1, 1_200)[-1] == "about text 1199")
    assert [len(body["calls"]) for body in toy.asked] == [1_200]
    for each in (document, long):
        each.close(True)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/pythonpath"]
    main(sys.argv[1])
