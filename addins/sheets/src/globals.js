// Functions that Sheets finds by name. Those with a trailing underscore would be hidden from it.

/** Runs when the spreadsheet opens. */
function onOpen() {
  RelServe.open();
}

/** Runs when the add-in is installed. */
function onInstall() {
  RelServe.open();
}

function relservePanel() {
  RelServe.panel();
}

function relserveFetchLate() {
  RelServe.act("fetchLate");
}

function relserveAskAgain() {
  RelServe.act("askAgain");
}

function relserveKeepValues() {
  RelServe.act("keepValues");
}

function relserveKeepInFormulas() {
  RelServe.act("keepInFormulas");
}

// What the sidebar calls, as whoever looks at it.

function relserveSettings() {
  return RelServe.shownSettings();
}

function relserveSignIn(url, key) {
  return RelServe.signIn(url, key);
}

function relserveForget() {
  return RelServe.forgetSettings();
}

function relserveChooseModel(model) {
  return RelServe.chooseModel(model);
}

function relserveAllowFormulas(isAllowed) {
  return RelServe.allowFormulas(isAllowed);
}

function relserveRelay(method, path, body) {
  return RelServe.relay(method, path, body);
}

function relserveRead() {
  return RelServe.readSheet();
}

function relserveWriteCell(place, content) {
  return RelServe.writeCell(place, content);
}

function relserveWriteAnswers(place, answers) {
  return RelServe.writeAnswers(place, answers);
}

function relserveTool(entry) {
  return RelServe.tool(entry);
}
