// CSV as RFC 4180 has it: quotes around what needs them, doubled inside; any line end is read, CRLF is written.

/**
 * The rows of a CSV text. The separator is the one of `,`, `;` and tab that the first line has most of. Throws where a
 * quote is never closed: all that follows it would be one cell.
 */
export function readCsv(source: string): string[][] {
  const text = source.replace(/^\uFEFF/, "");
  const separator = separatorOf(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let isQuoted = false;
  let opened = 0;
  for (let i = 0; i < text.length; i += 1) {
    const letter = text[i] as string;
    if (isQuoted) {
      if (letter !== '"') field += letter;
      else if (text[i + 1] === '"') {
        field += '"';
        i += 1;
      } else isQuoted = false;
    } else if (letter === '"' && field === "") {
      isQuoted = true;
      opened = i;
    } else if (letter === separator) {
      row.push(field);
      field = "";
    } else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[i + 1] === "\n") i += 1;
      rows.push([...row, field]);
      row = [];
      field = "";
    } else {
      field += letter;
    }
  }
  if (isQuoted) {
    const line = text.slice(0, opened).split(/\r\n|\r|\n/).length;
    throw new Error(`the quote that opens in line ${line} is never closed`);
  }
  if (field !== "" || row.length > 0) rows.push([...row, field]);
  return rows;
}

function separatorOf(text: string): string {
  const line = text.slice(0, text.search(/[\r\n]|$/)).replace(/"[^"]*"/g, "");
  const count = (letter: string) => line.split(letter).length;
  return [",", ";", "\t"].reduce((best, letter) => (count(letter) > count(best) ? letter : best));
}

/** Rows as CSV. */
export function writeCsv(rows: readonly (readonly string[])[]): string {
  const quoted = (field: string) => (/[",\r\n]|^\s|\s$/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  return rows.map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}

/**
 * A text as it leaves in a CSV. Other programs run what starts like a formula, and a model's answer or somebody's
 * cell may: an apostrophe keeps it text there, and is taken off when it is read here.
 */
export function harmless(text: string): string {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}
