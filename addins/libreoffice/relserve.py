"""RelServe in LibreOffice Calc: columns of answers from cell functions of a server, into the sheet as they come."""

import json
import os
import threading

import uno
import unohelper
from com.sun.star.awt import XActionListener, XItemListener
from com.sun.star.awt.MessageBoxType import MESSAGEBOX, QUERYBOX
from com.sun.star.lang import DisposedException
from com.sun.star.task import XJob, XJobExecutor

import relserve_cells as cells

# The server that this extension came from.
ADDRESS = "https://relserve.invalid"
NAME = "org.relserve.Calc"
YES = 2  # com.sun.star.awt.MessageBoxResults.YES
YES_NO = 3  # com.sun.star.awt.MessageBoxButtons.BUTTONS_YES_NO
# Answers are shown together this often, in seconds.
SHOW_S = 0.25

# Every menu entry makes a component of its own: the run under way is the module's.
running = None


class Settings:
    """Address, key and model: a file of the user's profile that nobody else reads, never the document."""

    def __init__(self, context):
        paths = context.ServiceManager.createInstanceWithContext("com.sun.star.util.PathSubstitution", context)
        self.path = os.path.join(uno.fileUrlToSystemPath(paths.substituteVariables("$(user)", True)), "relserve.json")

    def load(self):
        try:
            with open(self.path) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {"url": "" if ADDRESS.endswith(".invalid") else ADDRESS, "key": "", "model": ""}

    def save(self, values):
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(values, file)
        # One that was there keeps its mode else.
        os.chmod(self.path, 0o600)


class Sheet:
    """The open sheet: its table, and the first free column, which answers go to."""

    def __init__(self, document):
        self.sheet = document.CurrentController.ActiveSheet
        cursor = self.sheet.createCursor()
        cursor.gotoStartOfUsedArea(False)
        cursor.gotoEndOfUsedArea(True)
        used = cursor.RangeAddress
        data = cursor.getDataArray()
        if all(value == "" for row in data for value in row):
            raise cells.Problem("The open sheet has no rows: type or paste some first.")
        self.headers, self.rows = cells.table(data)
        self.top, self.first, self.free = used.StartRow, used.EndRow + 1 - len(self.rows), used.EndColumn + 1

    def name(self, title):
        """Writes the new column's title, where the sheet has any."""
        if self.first > self.top:
            self.sheet.getCellByPosition(self.free, self.first - 1).String = title

    def write(self, row, values):
        """Writes answers downwards. Texts stay texts."""
        place = self.sheet.getCellRangeByPosition(self.free, self.first + row, self.free, self.first + row + len(values) - 1)
        place.setDataArray(tuple((value,) for value in values))


class Run:
    """A column that fills, in a thread of its own."""

    def __init__(self, document, sheet, server, model, calls):
        self.sheet, self.server, self.model, self.calls = sheet, server, model, calls
        self.bar = document.CurrentController.Frame.createStatusIndicator()
        self.most = sum(call is not None for call in calls)
        self.lock, self.waiting, self.timer, self.done, self.state = threading.Lock(), {}, None, 0, "running"
        self.bar.start("RelServe", self.most)
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        done, problem = cells.fill(self.server, self.model, self.calls, self.show, self.told)
        self.flush()
        stopped = f"RelServe stopped: {done} of {self.most} cells are answered and stay."
        self.tell(stopped if self.server.is_stopped else f"RelServe: {done} of {self.most} cells are answered. {problem}")

    def show(self, rows, value):
        with self.lock:
            self.waiting.update((row, value) for row in rows)
            if self.timer is None:
                self.timer = threading.Timer(SHOW_S, self.flush)
                self.timer.daemon = True
                self.timer.start()

    def told(self, state):
        self.state = state
        self.tell(self.line())

    def line(self):
        if self.state == "reconnecting":
            return f"RelServe, reconnecting: the server is away. {self.done} of {self.most} cells are done; the rest goes on by itself."
        return f"RelServe: {self.done} of {self.most} cells"

    def flush(self):
        with self.lock:
            waiting, self.waiting, self.timer = sorted(self.waiting.items()), {}, None
        try:
            while waiting:
                end = next((i for i in range(1, len(waiting)) if waiting[i][0] != waiting[i - 1][0] + 1), len(waiting))
                self.sheet.write(waiting[0][0], [value for _, value in waiting[:end]])
                self.done += end
                waiting = waiting[end:]
        except DisposedException:
            # The document was closed: nobody waits any more.
            self.server.stop()
            return
        self.tell(self.line())

    def tell(self, words):
        try:
            self.bar.setText(words)
            self.bar.setValue(self.done)
        except DisposedException:
            pass


class Form:
    """A dialog of labels and fields, one below the other."""

    def __init__(self, context, title, width=180):
        self.context, self.width, self.y = context, width, 6
        self.create = lambda name: context.ServiceManager.createInstanceWithContext(f"com.sun.star.awt.{name}", context)
        self.model = self.create("UnoControlDialogModel")
        self.model.Title, self.model.Width = title, width
        self.control = self.create("UnoControlDialog")
        self.control.setModel(self.model)

    def add(self, kind, name, height, x=6, width=None, **properties):
        model = self.model.createInstance(f"com.sun.star.awt.UnoControl{kind}Model")
        model.PositionX, model.PositionY, model.Height, model.Width = x, self.y, height, width or self.width - 12
        for key, value in properties.items():
            setattr(model, key, value)
        self.model.insertByName(name, model)
        return self.control.getControl(name)

    def row(self, label, kind, name, height=13, **properties):
        self.add("FixedText", f"{name}-label", 9, Label=label)
        self.y += 9
        field = self.add(kind, name, height, **properties)
        self.y += height + 4
        return field

    def buttons(self, **labels):
        each = (self.width - 12) // len(labels)
        for place, (name, label) in enumerate(labels.items()):
            self.add("Button", name, 15, 6 + place * each, each - 3, Label=label)
        self.y += 19

    def on(self, name, then):
        self.control.getControl(name).addActionListener(Clicked(then))

    def run(self):
        self.model.Height = self.y + 2
        self.control.createPeer(self.create("Toolkit"), None)
        self.control.execute()
        self.control.dispose()


class Clicked(unohelper.Base, XActionListener, XItemListener):
    """Calls back."""

    def __init__(self, then):
        self.then = then

    def actionPerformed(self, _):
        self.then()

    def itemStateChanged(self, _):
        self.then()

    def disposing(self, _):
        pass


class Calc(unohelper.Base, XJobExecutor, XJob):
    """The menu's entries."""

    def __init__(self, context):
        self.context = context
        self.settings = Settings(context)
        desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
        self.document = desktop.getCurrentComponent()

    def trigger(self, entry):
        """An entry of the menu."""
        try:
            {"column": self.column, "stop": self.stop, "server": self.sign_in}[entry]()
        except cells.Problem as problem:
            self.say(str(problem))
        except cells.Unreachable:
            self.say(f"No server answers at {self.settings.load()['url'] or 'an empty address'}: RelServe > Server and key.")

    def execute(self, arguments):
        """The same without a dialog, for macros: `function`, `column` (from 0), `title`, and `texts` as JSON."""
        given = {argument.Name: argument.Value for argument in arguments}
        server = self.server()
        function = next(item for item in cells.functions(server.get("/v1/catalogue")) if item["name"] == given["function"])
        sheet = Sheet(self.document)
        calls = cells.column_calls(function, given.get("column", 0), json.loads(given["texts"]), sheet.headers, sheet.rows)
        self.start(sheet, server, calls, given["title"])

    def stop(self):
        if running:
            running.server.stop()

    def server(self):
        set_ = self.settings.load()
        if not set_["key"]:
            raise cells.Problem("No key is set: RelServe > Server and key.")
        return cells.Server(set_["url"], set_["key"])

    def start(self, sheet, server, calls, title):
        global running
        if running:
            running.server.stop()
        sheet.name(title)
        running = Run(self.document, sheet, server, self.settings.load().get("model"), calls)

    def column(self):
        """The wizard: a function or a prompt over a column, five rows to look at, then all."""
        server, sheet = self.server(), Sheet(self.document)
        functions = cells.functions(server.get("/v1/catalogue"))
        most = max(len(cells.fields(function)) for function in functions)
        form = Form(self.context, "RelServe: add an AI column")
        names = tuple(f"{item['name']}: {item['summary']}" for item in functions)
        what = form.row("What to do", "ListBox", "what", StringItemList=names, Dropdown=True, SelectedItems=(0,))
        over = form.row("With the column", "ListBox", "over", StringItemList=tuple(sheet.headers), Dropdown=True, SelectedItems=(0,))
        texts = [form.row("", "Edit", f"text{i}") for i in range(most)]
        title = form.row("Title of the new column", "Edit", "title")
        seen = form.row("The first rows", "Edit", "seen", 50, MultiLine=True, ReadOnly=True, VScroll=True)
        form.buttons(**{"try": "Try five rows", "add": "Add and run", "close": "Close"})

        def function():
            return functions[what.getSelectedItemPos()]

        def show_fields():
            wanted = cells.fields(function())
            form.control.getControl("over").setEnable(all(item["name"] != "prompt" for item in wanted))
            for i, field in enumerate(texts):
                field.setVisible(i < len(wanted))
                label = form.control.getControl(f"text{i}-label")
                label.setVisible(i < len(wanted))
                if i < len(wanted):
                    label.setText(field_label(wanted[i], sheet.headers))

        def calls(rows):
            given = {item["name"]: field.Text for item, field in zip(cells.fields(function()), texts)}
            return cells.column_calls(function(), over.getSelectedItemPos(), given, sheet.headers, rows)

        def look():
            rows = sheet.rows[:cells.PREVIEW_ROWS]
            answers = ["…"] * len(rows)

            def shown(places, value):
                for place in places:
                    answers[place] = str(value)
                seen.setText("\n".join(answers))

            self.guarded(seen, lambda: threading.Thread(
                target=cells.fill, args=(self.server(), self.settings.load().get("model"), calls(rows), shown, lambda _: None),
                daemon=True).start())

        def add():
            wanted = calls(sheet.rows)
            new = [call for call in wanted if call is not None]
            if len(new) > cells.FREELY and not self.asks(cells.costs(server, new)):
                return
            form.control.endExecute()
            self.start(sheet, server, wanted, title.Text.strip() or function()["name"])

        what.addItemListener(Clicked(show_fields))
        form.on("try", look)
        form.on("add", lambda: self.guarded(seen, add))
        form.on("close", form.control.endExecute)
        show_fields()
        form.run()

    def guarded(self, place, what):
        """Does something, or says in the dialog what is wrong."""
        try:
            what()
        except cells.Problem as problem:
            place.setText(str(problem))
        except cells.Unreachable:
            place.setText("The server is away.")

    def sign_in(self):
        """Address, key and model."""
        set_ = self.settings.load()
        form = Form(self.context, "RelServe: server and key")
        url = form.row("Address of the server", "Edit", "url", Text=set_["url"])
        key = form.row("API key (empty: the one that is set)", "Edit", "key", EchoChar=ord("*"))
        model = form.row("Model (empty: the server's own)", "ComboBox", "model", Text=set_.get("model", ""), Dropdown=True)
        said = form.row("", "Edit", "said", 24, MultiLine=True, ReadOnly=True)
        form.buttons(save="Save and test", close="Close")

        def save():
            address = url.Text.strip().rstrip("/")
            if not is_safe(address):
                raise cells.Problem("The address must begin with https://, or the key would travel in the clear.")
            used = key.Text.strip() or set_["key"]
            models = tuple(item["id"] for item in cells.Server(address, used).get("/v1/models")["data"])
            model.removeItems(0, model.getItemCount())
            model.addItems(models, 0)
            if model.Text.strip() and model.Text.strip() not in models:
                raise cells.Problem(f"The server has no such model, but {', '.join(models)}.")
            self.settings.save({"url": address, "key": used, "model": model.Text.strip()})
            said.setText(f"Signed in. Models: {', '.join(models)}.")

        form.on("save", lambda: self.guarded(said, save))
        form.on("close", form.control.endExecute)
        form.run()

    def say(self, words):
        self.box(MESSAGEBOX, 1, words)

    def asks(self, words):
        return self.box(QUERYBOX, YES_NO, words) == YES

    def box(self, kind, buttons, words):
        window = self.document.CurrentController.Frame.ContainerWindow
        return window.Toolkit.createMessageBox(window, kind, buttons, "RelServe", words).execute()


def field_label(parameter, headers):
    """What is typed into a field."""
    if parameter["name"] == "prompt":
        return "Prompt, with columns as " + ", ".join(f"{{{header}}}" for header in headers)
    if parameter["name"] in ("labels", "tags"):
        return f"{parameter['name'].capitalize()}, separated by commas"
    return parameter["name"].capitalize() + (" (may stay empty)" if parameter["optional"] else "")


def is_safe(address):
    """Whether a key may be sent there: over TLS, or within this machine."""
    host = cells.urlsplit(address)
    return host.scheme == "https" or (host.scheme == "http" and host.hostname in ("localhost", "127.0.0.1", "::1"))


g_ImplementationHelper = unohelper.ImplementationHelper()
g_ImplementationHelper.addImplementation(Calc, NAME, (NAME,))
