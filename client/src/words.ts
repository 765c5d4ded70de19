// What the client itself says of calls and connections; all else is the server's words. A page in another language lays its
// own over these.

export const words = {
  status: (status: number) =>
    status >= 500 ? `something went wrong on the server (status ${status}): try again in a moment` : `the server refused this (status ${status})`,
  broke: "the connection broke",
  endedEarly: "the answers ended early",
  tooMany: (name: string, most: number, got: number) => `${name} takes ${most} arguments at most, got ${got}`,
  missing: (name: string, argument: string) => `${name}: argument \`${argument}\` is missing`,
  noFunction: (name: string) => `there is no function ${name}`,
  leftEmpty: (argument: string) => `${argument} is missing`,
  notNumber: (argument: string) => `${argument} is no number`,
  noColumns: "the prompt names no column: write one in braces, such as {Review}",
  unknownColumn: (name: string) => `there is no column {${name}}`,
  shape: (name: string, argument: string) => `${name}: argument \`${argument}\` must be one cell, or a range of the same shape`,
};
