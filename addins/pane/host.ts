// What the pane needs of the sheet that it stands beside: Excel, or Google Sheets.

import type { Dialect } from "relserve-client/column";
import type { Scalar } from "relserve-client/value";

/** What is set, without the key itself. */
export interface Settings {
  url: string;
  hasKey: boolean;
  /** The model that later calls ask; the server's own where none is chosen. */
  model: string | undefined;
  /** Whether formulas may use this user's key, where that is a question of its own. */
  formulas?: boolean;
}

/** The used cells of the open sheet. */
export interface SheetCells {
  /** The sheet's id and name. */
  id: string;
  name: string;
  /** Where the first of the cells stands, from 0. */
  row: number;
  column: number;
  values: Scalar[][];
}

/** A place of a sheet, from 0. */
export interface Place {
  /** The sheet's id. */
  sheet: string;
  row: number;
  column: number;
}

/** A button that works on selected cells; gives what it did, in words. */
export interface Tool {
  label: string;
  run(): Promise<string>;
}

/** The sheet and what is kept for its user. Every promise is rejected with words for the user. */
export interface PaneHost {
  dialect: Dialect;
  /** Whether the sheet is read without a way over the network. */
  readsFast: boolean;
  /** What is written where a formula is not wanted, or cannot be. */
  usual: "formula" | "values";
  tools: Tool[];
  settings(): Promise<Settings>;
  /** Tries address and key, and keeps them if they work; an empty key is the one that is set. */
  save(url: string, key: string): Promise<void>;
  forget(): Promise<void>;
  chooseModel(model: string | undefined): Promise<void>;
  /** Lets formulas use the key; only where `Settings.formulas` is there. */
  allowFormulas?(isAllowed: boolean): Promise<void>;
  /** Asks a route of the server with the key that is set. */
  get(path: string): Promise<Response>;
  /** The open sheet; nothing where it is empty. */
  read(): Promise<SheetCells | undefined>;
  /** Writes a formula, or a title, into one cell. */
  writeCell(place: Place, content: string): Promise<void>;
  /** Writes answers downwards, as texts and numbers; `null` stays blank. */
  writeAnswers(place: Place, answers: (string | number | null)[]): Promise<void>;
}
