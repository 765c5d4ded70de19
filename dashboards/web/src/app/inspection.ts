// What is known of one cell: from the sheet what it asks, from the session how that stands, from the server the prompt
// and what it holds now.

import { type Call, keyOf, requestOf } from "relserve-client/calls";
import { CellError, PENDING, type Scalar, shown } from "relserve-client/value";
import { withoutPlace } from "relserve-client/wire";

import { type CellId, cellId, cellName, nameOf } from "../core/address";
import { type CellState, type Line, type ServerQueue, linesOf } from "../core/inspect";
import { type Origins, changedCells } from "../core/origins";
import { answered, ofModel, told } from "../net/told";
import { t } from "../text";
import type { Inspected, Prompt } from "../ui/inspector";
import { reason } from "./reason";
import type { Session } from "./session";

/** Calls of a cell whose prompts are shown; a sum over a column has thousands. */
const PROMPTS_MAX = 5;

interface PromptsReply {
  model: string;
  prompts: { text?: string; tokens?: number; max_tokens?: number; error?: { message: string } }[];
}

/** Of a value on cells that are different now. */
const CHANGED: Line = [t.inspect.changedTerm, t.inspect.changed];

/** Tells about cells of a session. */
export class Inspection {
  private cell: CellId | undefined;
  private asked = "";
  private prompts: Promise<readonly Prompt[]> | undefined;
  private queue: ServerQueue | undefined;
  private isLooking = false;

  /** `changed`: there is news about the cell. */
  constructor(private readonly changed: () => void) {}

  /** A cell. */
  of(session: Session, origins: Origins, row: number, column: number): Inspected {
    const id = cellId(row, column);
    const { sheet } = session;
    const calls = [...(sheet.callsIn({ row, column, rowEnd: row, columnEnd: column }).get(id)?.values() ?? [])];
    const value = sheet.value(row, column);
    const name = cellName(row, column);
    this.refresh(id, calls);
    const edited = sheet.overrides(id);
    const kept = calls.length === 0 && sheet.raw(row, column) !== "" ? origins.get(id)?.formula : undefined;
    const hasChanged = changedCells(sheet, origins, [id]).length > 0;
    const about = kept ? t.inspect.kept(shown(value)) : aboutOf(value, sheet.isAi(row, column), calls.length, edited);
    const lines: Line[] = [...(kept ? [[t.inspect.keptFrom, kept] as const] : []), ...(hasChanged ? [CHANGED] : [])];
    const formula = calls.length > 0 || sheet.isAi(row, column) ? sheet.formulaOf(row, column) : "";
    if (calls.length === 0) return { name, about, formula, error: "", lines, again: "", prompts: undefined };
    const state = this.state(session, calls, value);
    const error = value instanceof CellError ? value.note : "";
    if (edited === undefined) lines.push(...linesOf(state));
    const isOver = state.kind === "answered" || state.kind === "failed" || state.kind === "stopped";
    // An argument that makes no sense makes none the next time either.
    const isInvalid = state.kind === "failed" && value instanceof CellError && value.code === "#VALUE!";
    const again = !isOver || isInvalid || edited !== undefined ? "" : state.kind === "answered" ? t.inspect.again : t.inspect.retry;
    return { name, about, formula, error, lines, again, prompts: this.prompts };
  }

  private state(session: Session, calls: readonly Call[], value: Scalar): CellState {
    const all = calls.map((call) => session.stateOf(keyOf(call)));
    if (value === PENDING || all.some(({ open }) => open !== undefined)) {
      if (session.isPaused) return { kind: "paused" };
      if (session.isReconnecting) return { kind: "away" };
      if (!all.some(({ open }) => open === "sent")) return { kind: "queued" };
      void this.look(calls[0]?.model);
      return { kind: "sent", queue: this.queue };
    }
    if (value instanceof CellError && value.code === "#STOPPED!") return { kind: "stopped" };
    const known = all.find(({ answer }) => answer?.error) ?? all.find(({ answer }) => answer !== undefined);
    const kind = value instanceof CellError ? "failed" : "answered";
    return { kind, details: known?.answer?.details, isKnown: known?.answer !== undefined };
  }

  /** Asks for the prompts of another cell. */
  private refresh(id: CellId, calls: readonly Call[]): void {
    const asked = calls.map(keyOf).join("\n");
    if (id === this.cell && asked === this.asked) return;
    [this.cell, this.asked, this.queue] = [id, asked, undefined];
    this.prompts = calls.length > 0 ? promptsOf(calls) : undefined;
  }

  /** What the server holds, asked once for a cell. */
  private async look(model: string | undefined): Promise<void> {
    if (this.isLooking || this.queue) return;
    this.isLooking = true;
    const cell = this.cell;
    const queue = await told<ServerQueue>(`v1/scheduler${ofModel(model)}`);
    this.isLooking = false;
    if (cell !== this.cell || !queue) return;
    this.queue = queue;
    this.changed();
  }
}

async function promptsOf(calls: readonly Call[]): Promise<readonly Prompt[]> {
  // A formula that names several models shows the prompts of the first.
  const own = calls.filter(({ model }) => model === calls[0]?.model);
  try {
    const { model, prompts } = await answered<PromptsReply>("v1/cells/prompts", requestOf(own.slice(0, PROMPTS_MAX)));
    const told = prompts.map(({ text, tokens, max_tokens, error }): Prompt =>
      error ? { term: t.inspect.noPrompt, text: withoutPlace(error.message), isNote: true }
        : { term: t.inspect.promptTo(model, tokens ?? 0, max_tokens ?? 0), text: text ?? "" });
    const more = calls.length - prompts.length;
    return more > 0 ? [...told, { term: t.inspect.more, text: t.inspect.morePrompts(more), isNote: true }] : told;
  } catch (error) {
    return [{ term: t.inspect.prompt, text: t.inspect.promptUntold(reason(error)), isNote: true }];
  }
}

function aboutOf(value: Scalar, isAi: boolean, calls: number, edited: CellId | undefined): string {
  if (edited !== undefined) return t.inspect.edited(shown(value), nameOf(edited));
  if (value === PENDING) return t.inspect.waiting;
  if (calls === 0) return isAi ? t.inspect.asksNothing : t.inspect.noFormula;
  const many = calls > 1 ? t.inspect.outOf(calls) : "";
  return `${value instanceof CellError ? t.inspect.noAnswer(value.code) : t.inspect.answer(shown(value))}${many}`;
}
