// Functions that Sheets finds by name. Those with a trailing underscore would be hidden from it.

/** Runs when the spreadsheet opens. */
function onOpen() {
  RelServe.open();
}

/** Runs when the add-in is installed. */
function onInstall() {
  RelServe.open();
}

function relserveDialog() {
  RelServe.dialog();
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

function relserveSettings() {
  return RelServe.shownSettings();
}

function relserveSave(url, key) {
  return RelServe.saveSettings(url, key);
}

function relserveForget() {
  return RelServe.forgetSettings();
}
