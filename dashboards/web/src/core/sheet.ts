// A sheet: what was typed, what it is worth, and what has to be computed again. Pure: AI calls that have no
// answer yet are reported through `onWants`, answers arrive in `memory`, and `touch` says which formulas to redo.

import { type Call, type Plan, answered } from "relserve-client/calls";
import type { AnswerCache } from "relserve-client/answer-cache";
import { CellError, type Matrix, PENDING, type Scalar, type Value, isMatrix } from "relserve-client/value";

import { t } from "../text";
import { type Area, type CellId, COLUMNS_MAX, ROWS_MAX, cellId, columnOfId, contains, nameOf, rowOf } from "./address";
import { callsFor } from "./cell-calls";
import { CellSet } from "./cell-set";
import { Dependents, type Large } from "./dependents";
import { type Context, MODEL, evaluate } from "./evaluate";
import { type Clock, GIVES_DATE } from "./date-functions";
import { FormulaError, type Node, type Read, parse, readsOf } from "./parse";
import { type KeyedPlan, Plans } from "./plans";
import { type Numbers, Ranges, numbersOf } from "./ranges";
import { isSameSheet } from "./references";
import { asksModel, isFormula, typed } from "./typed";

interface Cell {
  raw: string;
  value: Scalar;
  formula: Formula | undefined;
}

interface Formula {
  tree: Node;
  areas: Area[];
  /** What it reads of other sheets. */
  elsewhere: Read[];
  /** Whether it asks the model: what is typed over its answers stands, and does not stop it. */
  isAi: boolean;
  /** Whether something stands in front of its first answer. */
  isOverridden: boolean;
  /** The answer's rows where it is more than one cell. */
  spill: Matrix | undefined;
  /** Where it spills, or would. */
  reach: Area | undefined;
  wants: number;
}

/** A change of what is typed. */
export interface Change {
  row: number;
  column: number;
  raw: string;
}

/** What a sheet takes of the world around it. */
export interface Surroundings {
  /** The sheet of a name beside this one. */
  other(name: string): Sheet | undefined;
  clock: Clock;
  /** The model that formulas ask which name none; the server's default one without. */
  model?(): string | undefined;
}

const ALONE: Surroundings = { other: () => undefined, clock: () => Number.NaN };

/** Passes over what spilling touched. More only happen where spills feed on each other. */
const PASSES_MAX = 16;

/** A sheet. */
export class Sheet {
  private readonly cells = new Map<CellId, Cell>();
  private readonly dependents = new Dependents();
  /** The owners of cells that a neighbour's answer spilled into. */
  private readonly owners = new Map<CellId, CellId>();
  /** Typed cells that stand for an answer, and the formula whose answer it is. */
  private readonly overriding = new Map<CellId, CellId>();
  /** Formulas with a reach. */
  private readonly spilling = new Set<CellId>();
  private readonly dirty = new CellSet();
  /** Ranges whose readers are all out of date; none while formulas are computed, which ends that one by one. */
  private met: Set<Large> | undefined = new Set();
  private readonly plans = new Plans();
  private readonly ranges = new Ranges((row, column) => this.value(row, column));
  /** One past the last row and column in use, until a cell goes. */
  private used: { rows: number; columns: number } | undefined = { rows: 0, columns: 0 };
  /** Counts cells that spilling has changed. */
  private spills = 0;
  private changed = new Set<CellId>();
  /** Formulas that read other sheets, and those that do so in a circle. */
  private readonly outward = new Set<CellId>();
  private readonly circular = new Set<CellId>();
  private hasNewFormulas = false;

  constructor(
    private readonly memory: AnswerCache,
    private readonly onWants: (cell: CellId, calls: ReadonlyMap<string, Call>) => void,
    private readonly around = ALONE,
  ) {}

  /** What was typed. */
  raw(row: number, column: number): string {
    return this.cells.get(cellId(row, column))?.raw ?? "";
  }

  /** What it is worth, or what spilled there. */
  value(row: number, column: number): Scalar {
    const id = cellId(row, column);
    const cell = this.cells.get(id);
    if (cell) return cell.value;
    const owner = this.owners.get(id);
    if (owner === undefined) return null;
    return this.cells.get(owner)?.formula?.spill?.[row - rowOf(owner)]?.[column - columnOfId(owner)] ?? null;
  }

  /** The cell whose answer spilled into this one. */
  spilledFrom(row: number, column: number): CellId | undefined {
    const id = cellId(row, column);
    return this.cells.has(id) ? undefined : this.owners.get(id);
  }

  /** Where a cell's answer spilled to, itself included. */
  spillOf(row: number, column: number): Area | undefined {
    const formula = this.cells.get(cellId(row, column))?.formula;
    return formula?.spill ? formula.reach : undefined;
  }

  /** The formula one of whose answers was typed over in this cell: its own cell where the first one was. */
  overrides(id: CellId): CellId | undefined {
    return this.cells.get(id)?.formula?.isOverridden ? id : this.overriding.get(id);
  }

  /** What was typed where a cell's answer comes from: in it, or in the one whose answer spilled into it or was typed over. */
  formulaOf(row: number, column: number): string {
    const id = cellId(row, column);
    const owner = this.overriding.get(id) ?? this.spilledFrom(row, column) ?? id;
    return this.cells.get(owner)?.raw ?? "";
  }

  /** Whether an AI function stands in the cell, or spilled into it. */
  isAi(row: number, column: number): boolean {
    const owner = this.spilledFrom(row, column);
    return asksModel(owner === undefined ? this.raw(row, column) : this.formulaOf(row, column));
  }

  /** The calls that formulas make for each cell of an area; for what was typed over an answer, those of the answer. */
  callsIn(area: Area): Map<CellId, Map<string, Call>> {
    const [found, plans] = [new Map<CellId, Map<string, Call>>(), new Map<CellId, Plan[]>()];
    const { rows, columns } = this.extent();
    for (let row = area.row; row <= Math.min(area.rowEnd, rows - 1); row += 1) {
      for (let column = area.column; column <= Math.min(area.columnEnd, columns - 1); column += 1) {
        const id = cellId(row, column);
        const owner = this.overriding.get(id) ?? this.owners.get(id) ?? id;
        const formula = this.cells.get(owner)?.formula;
        if (!formula) continue;
        const planned = plans.get(owner) ?? this.plansOf(owner, formula.tree);
        plans.set(owner, planned);
        const calls = callsFor(planned, [row - rowOf(owner), column - columnOfId(owner)], formula.spill);
        if (calls.size > 0) found.set(id, calls);
      }
    }
    return found;
  }

  /** The calls that a formula would make in a cell. */
  callsOf(raw: string, cell: CellId): Map<string, Call> {
    try {
      return callsFor(this.plansOf(cell, parse(raw)), [0, 0], undefined);
    } catch (error) {
      if (!(error instanceof FormulaError)) throw error;
      return new Map();
    }
  }

  private plansOf(id: CellId, tree: Node): Plan[] {
    const plans: Plan[] = [];
    const whole = wholeCall(tree);
    evaluate(tree, this.context(id, (item, args, nodes, model) => {
      const planned = this.plans.of(item, args, nodes, model);
      plans.push(planned);
      // Nothing else of the formula reads what it is worth.
      if (nodes === whole) return null;
      return this.values(planned, (_, key) => {
        const answer = this.memory.get(key);
        return answer ? answered(answer) : PENDING;
      });
    }));
    return plans;
  }

  /** The other sheets that a cell's formula names; nothing where no formula stands that can be read. */
  sheetsRead(row: number, column: number): string[] | undefined {
    return this.cells.get(cellId(row, column))?.formula?.elsewhere.map(({ sheet }) => sheet ?? "");
  }

  /** How a formula's date is shown where nobody has chosen a format. */
  usualFormat(row: number, column: number): string | undefined {
    const tree = this.cells.get(cellId(row, column))?.formula?.tree;
    return tree && dateFormat(tree);
  }

  /** The values of an area, for another sheet's formula. */
  area(area: Area): Matrix {
    return this.ranges.matrix(this.clipped(area));
  }

  /** The numbers of an area, for another sheet's formula. */
  numbers(area: Area): Numbers {
    return this.ranges.numbers(this.clipped(area));
  }

  /** All that is typed, in no order. */
  *typed(): Generator<Change> {
    for (const [id, { raw }] of this.cells) yield { row: rowOf(id), column: columnOfId(id), raw };
  }

  /** One past the last row and column in use, spilled cells included. */
  extent(): { rows: number; columns: number } {
    if (this.used) return this.used;
    this.used = { rows: 0, columns: 0 };
    for (const cells of [this.cells, this.owners]) for (const id of cells.keys()) this.use(id);
    return this.used;
  }

  private use(id: CellId): void {
    if (!this.used) return;
    const { rows, columns } = this.used;
    this.used = { rows: Math.max(rows, rowOf(id) + 1), columns: Math.max(columns, columnOfId(id) + 1) };
  }

  private unuse(id: CellId): void {
    const isEdge = rowOf(id) + 1 === this.used?.rows || columnOfId(id) + 1 === this.used?.columns;
    if (isEdge) this.used = undefined;
  }

  /** A cell is worth something else. */
  private altered(id: CellId): void {
    this.changed.add(id);
    this.ranges.changed(id);
  }

  /** Types into cells. Call `recalculate` after. */
  set(changes: Iterable<Change>): void {
    const set: Change[] = [];
    for (const change of changes) {
      const id = cellId(change.row, change.column);
      const before = this.cells.get(id);
      if ((before?.raw ?? "") === change.raw) continue;
      this.retract(id, before);
      if (change.raw !== "") this.cells.set(id, this.read(id, change.raw));
      if (before?.formula || isFormula(change.raw)) this.hasNewFormulas = true;
      if (change.raw !== "") this.use(id);
      else this.unuse(id);
      this.altered(id);
      set.push(change);
    }
    for (const { row, column } of set) {
      const id = cellId(row, column);
      this.mark(id);
      // A spill may be blocked by this cell now, or no longer.
      for (const owner of this.spilling) {
        const reach = this.cells.get(owner)?.formula?.reach;
        if (owner !== id && reach && contains(reach, row, column)) this.mark(owner);
      }
    }
  }

  private read(id: CellId, raw: string): Cell {
    if (!isFormula(raw)) return { raw, value: typed(raw), formula: undefined };
    try {
      const tree = parse(raw);
      const reads = readsOf(tree);
      const areas = reads.filter(({ sheet }) => sheet === undefined).map(({ area }) => area);
      const elsewhere = reads.filter(({ sheet }) => sheet !== undefined);
      this.dependents.set(id, [], areas);
      if (elsewhere.length > 0) this.outward.add(id);
      const isOverridden = tree.kind === "call" && tree.name === "OVERRIDE";
      const formula = { tree, areas, elsewhere, isAi: asksModel(raw), isOverridden, spill: undefined, reach: undefined, wants: 0 };
      return { raw, value: null, formula };
    } catch (error) {
      if (!(error instanceof FormulaError)) throw error;
      return { raw, value: new CellError("#ERROR!", error.message), formula: undefined };
    }
  }

  /** Takes a cell out, with all that it did elsewhere. */
  private retract(id: CellId, cell: Cell | undefined): void {
    if (!cell) return;
    if (cell.formula) {
      this.dependents.set(id, cell.formula.areas, []);
      this.unspill(id, cell.formula);
      if (cell.formula.wants > 0) this.onWants(id, new Map());
    }
    this.cells.delete(id);
    this.overriding.delete(id);
    this.outward.delete(id);
    this.circular.delete(id);
  }

  private unspill(owner: CellId, formula: Formula): void {
    for (const id of spillCells(owner, formula.spill)) {
      if (this.overriding.get(id) === owner) {
        this.overriding.delete(id);
        this.changed.add(id);
      }
      if (this.owners.get(id) !== owner) continue;
      this.owners.delete(id);
      this.unuse(id);
      this.altered(id);
      this.markReaders(id);
    }
    formula.spill = undefined;
    formula.reach = undefined;
    this.spilling.delete(owner);
  }

  /** Formulas to compute again, since answers came in. */
  touch(ids: Iterable<CellId>): void {
    for (const id of ids) if (this.cells.get(id)?.formula) this.mark(id);
  }

  /** Formulas that ask a model. */
  touchAi(): void {
    this.touch([...this.cells].flatMap(([id, { formula }]) => (formula?.isAi ? [id] : [])));
  }

  /** Formulas that make one of some calls. */
  touchCallers(keys: ReadonlySet<string>): void {
    const asks = (id: CellId, tree: Node) => [...callsFor(this.plansOf(id, tree), [0, 0], undefined).keys()].some((key) => keys.has(key));
    this.touch([...this.cells].flatMap(([id, { formula }]) => (formula?.isAi && asks(id, formula.tree) ? [id] : [])));
  }

  /** Formulas that read some of these cells of another sheet, or the sheet itself where no cells are named; whether there are any. */
  touchReaders(sheet: string, cells?: ReadonlySet<CellId>): boolean {
    const meets = cells ? meeting(cells) : () => true;
    const reads = (id: CellId) =>
      this.cells.get(id)?.formula?.elsewhere.some((read) => isSameSheet(read.sheet, sheet) && meets(read.area));
    const readers = [...this.outward].filter((id) => !this.circular.has(id) && reads(id));
    this.touch(readers);
    return readers.length > 0;
  }

  /** Ends a circle through several sheets: what reads another one and is out of date is an error until something is typed. */
  cutCircle(): void {
    for (const id of this.stale()) this.circular.add(id);
  }

  /** What reads other sheets and is out of date. */
  stale(): CellId[] {
    return [...this.outward].filter((id) => this.dirty.has(id));
  }

  /** Tries again what was in a circle. */
  joinCircle(): void {
    this.touch(this.circular);
    this.circular.clear();
  }

  /** Whether formulas came, went or changed since it was asked last: nothing else makes a circle or ends one. */
  tookFormulas(): boolean {
    const took = this.hasNewFormulas;
    this.hasNewFormulas = false;
    return took;
  }

  /** Formulas that have an error or wait: to be asked again. */
  touchUnfinished(): void {
    for (const [id, { value, formula }] of this.cells) {
      const all = formula?.spill?.flat() ?? [value];
      if (formula && all.some((one) => one instanceof CellError || one === PENDING)) this.mark(id);
    }
  }

  private mark(id: CellId): void {
    const stack = [id];
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
      this.changed.add(next);
      const isFormulaCell = this.cells.get(next)?.formula !== undefined;
      if (isFormulaCell && this.dirty.has(next)) continue;
      if (isFormulaCell) this.dirty.add(next);
      for (const reader of this.dependents.of(next, this.met)) if (!this.dirty.has(reader)) stack.push(reader);
      for (const cell of spillCells(next, this.cells.get(next)?.formula?.spill)) {
        for (const reader of this.dependents.of(cell, this.met)) if (!this.dirty.has(reader)) stack.push(reader);
      }
    }
  }

  private markReaders(id: CellId): void {
    this.spills += 1;
    for (const reader of this.dependents.of(id)) if (!this.dirty.has(reader)) this.mark(reader);
  }

  /** Computes what is out of date; gives the cells that may look different. */
  recalculate(): Set<CellId> {
    this.met = undefined;
    for (let pass = 0; pass < PASSES_MAX && this.dirty.size > 0; pass += 1) {
      // By rows, so that running totals need no deep stack.
      for (const id of this.dirty.sorted()) this.compute(id);
    }
    this.dirty.clear();
    this.met = new Set();
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }

  /** Computes a formula after all that it reads: a stack of its own, since a column may be a chain. */
  private compute(first: CellId): void {
    if (!this.dirty.has(first)) return;
    const frame = (id: CellId) => ({ id, reads: this.dirtyReads(id), spills: this.spills, again: 0 });
    const stack = [frame(first)];
    const open = new Set([first]);
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const next = top.reads.next();
      if (!next.done && !open.has(next.value)) {
        open.add(next.value);
        stack.push(frame(next.value));
        continue;
      }
      // A spill since then may have made out of date again what was computed for this one.
      if (next.done && top.spills !== this.spills && top.again < PASSES_MAX) {
        Object.assign(top, frame(top.id), { again: top.again + 1 });
        continue;
      }
      stack.pop();
      open.delete(top.id);
      this.dirty.delete(top.id);
      const cell = this.cells.get(top.id);
      if (!cell?.formula) continue;
      if (next.done) this.finish(top.id, cell, cell.formula);
      else this.place(top.id, cell, cell.formula, new CellError("#REF!", t.cell.onItself(nameOf(top.id))), new Map());
    }
  }

  /** Cells that a formula reads and that are out of date; a cell that was spilled into stands for its owner. */
  private *dirtyReads(id: CellId): Generator<CellId> {
    for (const area of this.cells.get(id)?.formula?.areas ?? []) {
      if (contains(area, rowOf(id), columnOfId(id))) yield id;
      for (const read of this.dirty.in(area)) if (read !== id) yield read;
      for (const owner of this.spilling) {
        if (owner === id || !this.dirty.has(owner)) continue;
        const formula = this.cells.get(owner)?.formula;
        if (formula?.spill && formula.reach && overlap(formula.reach, area)) yield owner;
      }
    }
  }

  private finish(id: CellId, cell: Cell, formula: Formula): void {
    const wants = new Map<string, Call>();
    const whole = wholeCall(formula.tree);
    const context = this.context(id, (item, args, nodes, model) =>
      this.ask(this.plans.of(item, args, nodes, model), nodes, wants, nodes === whole ? id : undefined));
    this.place(id, cell, formula, evaluate(formula.tree, context), wants);
  }

  private context(id: CellId, ai: Context["ai"]): Context {
    return {
      area: (area, name) => {
        const from = this.source(id, name);
        return from instanceof CellError ? [[from]] : from.area(area);
      },
      numbers: (area, name) => {
        const from = this.source(id, name);
        return from instanceof CellError ? numbersOf([from]) : from.numbers(area);
      },
      clock: this.around.clock,
      ai: (item, args, nodes, model = this.around.model?.()) => ai(item, args, nodes, model),
    };
  }

  /** The sheet that a reference means. */
  private source(id: CellId, name: string | undefined): Sheet | CellError {
    if (name === undefined) return this;
    if (this.circular.has(id)) return new CellError("#REF!", t.cell.onItselfThrough(nameOf(id), name));
    return this.around.other(name) ?? new CellError("#REF!", t.cell.noSheet(name));
  }

  /** `A:A` ends where the sheet does. */
  private clipped(area: Area): Area {
    if (area.rowEnd < ROWS_MAX - 1 && area.columnEnd < COLUMNS_MAX - 1) return area;
    const { rows, columns } = this.extent();
    return {
      ...area,
      rowEnd: Math.max(area.row, Math.min(area.rowEnd, rows - 1)),
      columnEnd: Math.max(area.column, Math.min(area.columnEnd, columns - 1)),
    };
  }

  /** An AI function; of a formula that is nothing else, `owner` is the cell, and what is typed over is not asked. */
  private ask(planned: KeyedPlan, nodes: readonly Node[], wants: Map<string, Call>, owner: CellId | undefined): Value {
    let waiting = 0;
    const isTypedOver = (y: number, x: number) =>
      planned.isRange && owner !== undefined &&
      (y + x === 0
        ? this.cells.get(owner)?.formula?.isOverridden === true
        : this.cells.has(cellId(rowOf(owner) + y, columnOfId(owner) + x)));
    const value = this.values(planned, (call, key, y, x) => {
      if (isTypedOver(y, x)) return null;
      const answer = this.memory.get(key);
      if (answer) return answered(answer);
      waiting += 1;
      wants.set(key, call);
      return PENDING;
    });
    if (waiting === 0) this.plans.drop(nodes);
    return value;
  }

  /** The answer in its shape, of what is known without asking and what each call is worth. */
  private values(planned: KeyedPlan, worth: (call: Call, key: string, y: number, x: number) => Value): Value {
    const one = (y: number, x: number): Value => {
      const [asked, key] = [planned.rows[y]?.[x], planned.keys[y]?.[x]];
      if (!asked) return null;
      return "known" in asked ? asked.known : worth(asked.call, key as string, y, x);
    };
    if (!planned.isRange) return one(0, 0);
    return planned.rows.map((row, y) => row.map((_, x) => {
      const value = one(y, x);
      // A list inside a range has no place of its own: its lines share the cell.
      return isMatrix(value) ? value.flat().join("\n") : value;
    }));
  }

  private place(id: CellId, cell: Cell, formula: Formula, value: Value, wants: Map<string, Call>): void {
    const before = formula.spill;
    const placed = isMatrix(value) ? this.spill(id, formula, value) : value;
    if (!isMatrix(placed)) {
      if (before) this.unspill(id, formula);
      if (placed instanceof CellError && placed.code === "#SPILL!" && isMatrix(value)) {
        formula.reach = reachOf(id, value);
        this.spilling.add(id);
      }
      cell.value = placed;
    }
    this.ranges.changed(id);
    if (wants.size > 0 || formula.wants > 0) this.onWants(id, wants);
    formula.wants = wants.size;
  }

  /** Lays rows out from a cell on; or gives what stands there instead. */
  private spill(id: CellId, formula: Formula, rows: Matrix): Matrix | Scalar {
    const cell = this.cells.get(id) as Cell;
    const first = rows[0]?.[0] ?? null;
    if (rows.length <= 1 && (rows[0]?.length ?? 0) <= 1) return first;
    const reach = reachOf(id, rows);
    if (reach.rowEnd >= ROWS_MAX || reach.columnEnd >= COLUMNS_MAX) {
      return new CellError("#SPILL!", t.cell.spillMax(rows.length));
    }
    const isFree = (at: CellId) =>
      this.cells.has(at) ? formula.isAi && (this.overriding.get(at) ?? id) === id : (this.owners.get(at) ?? id) === id;
    for (const at of spillCells(id, rows)) {
      if (!isFree(at)) return new CellError("#SPILL!", t.cell.spillBlocked(nameOf(at)));
    }
    const before = formula.spill;
    const isSameShape = before?.length === rows.length && before[0]?.length === rows[0]?.length;
    if (before && !isSameShape) this.unspill(id, formula);
    formula.spill = rows;
    formula.reach = reach;
    this.spilling.add(id);
    cell.value = first;
    for (const at of spillCells(id, rows)) {
      if (this.cells.has(at)) {
        this.owners.delete(at);
        this.overriding.set(at, id);
        this.changed.add(at);
        continue;
      }
      const [y, x] = [rowOf(at) - rowOf(id), columnOfId(at) - columnOfId(id)];
      if (isSameShape && this.owners.get(at) === id && before?.[y]?.[x] === rows[y]?.[x]) continue;
      this.owners.set(at, id);
      this.use(at);
      this.altered(at);
      this.markReaders(at);
    }
    return rows;
  }
}

/** The arguments of the AI call that a formula is, where it is no more than that, with or without `OVERRIDE` and `AI.MODEL`. */
function wholeCall(tree: Node | undefined): readonly Node[] | undefined {
  if (tree?.kind !== "call") return undefined;
  return tree.name === "OVERRIDE" || tree.name === MODEL ? wholeCall(tree.args[1]) : tree.args;
}

/** A date that a formula gives, or a date and days more or less. */
function dateFormat(tree: Node): string | undefined {
  if (tree.kind === "call") return GIVES_DATE[tree.name];
  if (tree.kind !== "binary" || !"+-".includes(tree.operator)) return undefined;
  const [left, right] = [dateFormat(tree.left), dateFormat(tree.right)];
  if (left && right) return undefined;
  return tree.operator === "-" ? left : (left ?? right);
}

function reachOf(id: CellId, rows: Matrix): Area {
  const [row, column] = [rowOf(id), columnOfId(id)];
  return { row, column, rowEnd: row + rows.length - 1, columnEnd: column + (rows[0]?.length ?? 1) - 1 };
}

/** Whether areas have some of these cells in them; a large one that many formulas read is looked at once. */
function meeting(cells: ReadonlySet<CellId>): (area: Area) => boolean {
  const known = new Map<string, boolean>();
  const isMet = (area: Area) => {
    for (const cell of cells) if (contains(area, rowOf(cell), columnOfId(cell))) return true;
    return false;
  };
  return (area) => {
    const { row, column, rowEnd, columnEnd } = area;
    if (row === rowEnd && column === columnEnd) return cells.has(cellId(row, column));
    const key = `${row},${column},${rowEnd},${columnEnd}`;
    const met = known.get(key) ?? isMet(area);
    known.set(key, met);
    return met;
  };
}

function overlap(a: Area, b: Area): boolean {
  return a.row <= b.rowEnd && b.row <= a.rowEnd && a.column <= b.columnEnd && b.column <= a.columnEnd;
}

/** The cells that rows spill into, without the owner's. */
function* spillCells(owner: CellId, rows: Matrix | undefined): Generator<CellId> {
  if (!rows) return;
  for (let y = 0; y < rows.length; y += 1) {
    for (let x = 0; x < (rows[0]?.length ?? 0); x += 1) {
      if (y > 0 || x > 0) yield cellId(rowOf(owner) + y, columnOfId(owner) + x);
    }
  }
}
