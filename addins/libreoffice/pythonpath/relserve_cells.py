"""Cell calls of a column: what they ask, and the server that answers them. Nothing here knows LibreOffice."""

import http.client
import json
import re
import socket
import time
from urllib.parse import urlsplit

# Calls of a request (the server takes 20,000), and seconds that a silent server is waited for: it speaks every 15.
CALLS = 5_000
SILENT_S = 40
# Seconds between two looks at a server that is away.
AWAY_S = 1
# More calls than this are told with their costs before they go out, as on the server's page.
FREELY = 1_000
PREVIEW_ROWS = 5
# A title is a short text; a row of data mostly is not.
TITLE_MAX = 60
CHARACTERS_PER_TOKEN = 4
# The argument that a function runs over, row by row.
OVER = ("text", "prompt", "input")


class Problem(Exception):
    """What went wrong, in words for the user."""


class Unreachable(Exception):
    """No server answered."""


class Server:
    """A server, one request at a time; `stop` drops the one under way, which cancels it on the server."""

    def __init__(self, url, key):
        self.url = url.rstrip("/")
        self.key = key
        self.is_stopped = False
        self.socket = None

    def get(self, path):
        """What a route says."""
        with self.open("GET", path, None, 10) as response:
            return json.loads(response.read())

    def is_there(self):
        """Whether a server answers at all."""
        try:
            with self.open("GET", "/healthz", None, 2):
                return True
        except Unreachable:
            return False
        except Problem:
            return True

    def stop(self):
        """Drops what is under way."""
        self.is_stopped = True
        try:
            if self.socket:
                self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It was over.

    def cells(self, calls, model, answered):
        """Asks calls; `answered(index, value, error)` is told each answer as it comes."""
        body = {"calls": calls, "stream": True}
        if model:
            body["model"] = model
        with self.open("POST", "/v1/cells", json.dumps(body), SILENT_S) as response:
            for name, data in events(response):
                if name == "cell":
                    error = data.get("error")
                    answered(data["index"], data.get("value"), error and error["message"])
                elif name == "done":
                    return
                elif name == "error":
                    raise Problem(data["error"]["message"])
        raise Unreachable

    def open(self, method, path, body, timeout):
        url = urlsplit(self.url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request(method, url.path + path, body, headers)
            self.socket = connection.sock
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable from error
        if response.status in (502, 504):
            raise Unreachable
        if response.status != 200:
            raise Problem(words(response))
        return response


def words(response):
    """Why a reply is none."""
    try:
        error = json.loads(response.read())["error"]
    except (ValueError, KeyError, OSError, http.client.HTTPException):
        return f"The server answered {response.status}."
    if response.status == 401:
        return "The server does not know this key: RelServe > Server and key."
    if error.get("code") == "budget_spent":
        return "Today's token budget is spent (limits.tenant_day_cell_tokens_max); it begins anew at midnight UTC."
    return error["message"]


def events(response):
    """Server-sent events, as they come."""
    name = "message"
    try:
        for raw in response:
            line = raw.decode().rstrip("\r\n")
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                yield name, json.loads(line[5:])
                name = "message"
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unreachable from error


def functions(catalogue):
    """The functions that make sense of one row at a time."""
    return [item for item in catalogue["data"] if item["name"] not in ("fill", "list")]


def fields(function):
    """The arguments that somebody types: all but the column that it runs over, and tables as context."""
    parameters = function["parameters"]
    return [item for item in parameters if item["name"] == "prompt" or item["name"] not in (*OVER, "context")]


def column_calls(function, over, texts, headers, rows):
    """A call for each row, `None` for one with nothing to ask about. `over` is a column's number, `texts` what was typed."""
    for parameter in fields(function):
        text = texts.get(parameter["name"], "").strip()
        if not text and not parameter["optional"]:
            raise Problem(f"{parameter['name']} is missing.")
        if text and parameter["kind"] == "number" and not re.fullmatch(r"-?\d+", text):
            raise Problem(f"{parameter['name']} is no whole number.")
    parts = prompt_parts(texts["prompt"].strip(), headers) if "prompt" in texts else [over]
    return [row_call(function, parts, texts, row) for row in rows]


def prompt_parts(prompt, headers):
    """A text with columns in braces, as texts and columns' numbers."""
    split = re.split(r"\{([^{}]+)\}", prompt)
    if len(split) == 1:
        raise Problem("The prompt names no column: write one in braces, such as {Review}.")
    numbers = {header.lower(): number for number, header in reversed(list(enumerate(headers)))}
    for name in split[1::2]:
        if name.strip().lower() not in numbers:
            raise Problem(f"There is no column {{{name.strip()}}}.")
    return [numbers[part.strip().lower()] if i % 2 else part for i, part in enumerate(split) if part or i % 2]


def row_call(function, parts, texts, row):
    if all(row[part] == "" for part in parts if isinstance(part, int)):
        return None
    own = row[parts[0]] if len(parts) == 1 else "".join(part if isinstance(part, str) else str(row[part]) for part in parts)
    args = [argument(parameter, own, texts) for parameter in function["parameters"]]
    while args and args[-1] is None:
        args.pop()
    return {"function": function["name"], "args": args}


def argument(parameter, own, texts):
    name = parameter["name"]
    if name in OVER:
        return own
    text = texts.get(name, "").strip()
    if not text:
        return None
    return int(text) if parameter["kind"] == "number" else text


def fill(server, model, calls, show, told):
    """
    Asks the calls of a column until all are answered or it is stopped. Equal calls go once; a server that is away is
    waited for. `show(rows, text)` is given each answer, `told(state)` "running" or "reconnecting". Gives how many rows
    have an answer, and why the last that has none does not.
    """
    waiting = {}
    for row, call in enumerate(calls):
        if call is not None:
            waiting.setdefault(json.dumps(call), []).append(row)
    done, problem = 0, ""
    while waiting and not server.is_stopped:
        keys = list(waiting)[:CALLS]

        def answered(index, value, error):
            nonlocal done, problem
            rows = waiting.pop(keys[index])
            problem = error or problem
            done += 0 if error else len(rows)
            show(rows, f"#N/A {error}" if error else value)

        try:
            server.cells([json.loads(key) for key in keys], model, answered)
        except Unreachable:
            if not server.is_stopped:
                wait_for(server, told)
        except Problem as error:
            return done, str(error)
        else:
            # What a server leaves out is not asked for ever.
            for key in [key for key in keys if key in waiting]:
                show(waiting.pop(key), "#N/A the server left the cell out")
    return done, problem


def wait_for(server, told):
    """Waits until a server is back, or the run is stopped."""
    told("reconnecting")
    while not server.is_stopped:
        time.sleep(AWAY_S)
        if server.is_there():
            break
    told("running")


def table(data):
    """The titles of a sheet's columns and its rows: titles are short texts in all of the first row's filled cells."""
    rows = [[plain(value) for value in row] for row in data]
    top = [value for value in rows[0] if value != ""]
    has_titles = len(rows) > 1 and top and all(isinstance(value, str) and len(value) <= TITLE_MAX for value in top)
    names = [str(value).strip() if has_titles else "" for value in rows[0]]
    return [name or letters(column) for column, name in enumerate(names)], rows[1:] if has_titles else rows


def plain(value):
    """A cell as JSON has it; Calc gives every number a fraction, and errors as nothing or as no number."""
    if value is None or value != value:
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def letters(column):
    """`A` of column 0."""
    name, rest = "", column + 1
    while rest > 0:
        name = chr(65 + (rest - 1) % 26) + name
        rest = (rest - 1) // 26
    return name


def costs(server, calls):
    """What many calls will cost, as a question."""
    tokens = sum(len(json.dumps(call["args"])) for call in calls) // CHARACTERS_PER_TOKEN
    budget = server.get("/v1/usage?days=1").get("cells_day_tokens") or {"max": None, "used": 0}
    left = "no limit" if budget["max"] is None else f"{max(0, budget['max'] - budget['used']):,} tokens are left today"
    return f"Ask {len(calls):,} cells? They have about {tokens:,} tokens of their own. Budget: {left}."
