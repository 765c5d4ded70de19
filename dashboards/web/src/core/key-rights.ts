// What a key may, in words.

/** What a key may, as the server lists it. */
export interface KeyScope {
  operator: boolean;
  /** Whether it only looks. */
  read_only: boolean;
  /** The groups of routes that it may use; null: all. */
  routes: string[] | null;
  /** The tables that its SQL may read; null: all. */
  tables: string[] | null;
}

/** The words for it. */
export interface RightsWords {
  /** An operator's key that nothing bounds. */
  operator: string;
  /** An operator's key that only looks. */
  operatorReads: string;
  /** A tenant's key that nothing bounds. */
  all: string;
  readOnly: string;
  routes(names: string[]): string;
  noRoutes: string;
  tables(names: string[]): string;
  noTables: string;
  /** So many names are not shown. */
  more(n: number): string;
}

/** Names that are shown of a list: a key may have a thousand tables. */
const NAMES_SHOWN = 8;

/** What a key may: one phrase for each of its rights and bounds. */
export function rightsOf({ operator, read_only: isReadOnly, routes, tables }: KeyScope, said: RightsWords): string[] {
  const listed = (names: string[] | null, some: (names: string[]) => string, none: string): string[] => {
    if (names === null) return [];
    if (names.length === 0) return [none];
    const left = names.length - NAMES_SHOWN;
    return [some(left > 0 ? [...names.slice(0, NAMES_SHOWN), said.more(left)] : names)];
  };
  const bounds = [
    ...(isReadOnly && !operator ? [said.readOnly] : []),
    ...listed(routes, (names) => said.routes(names), said.noRoutes),
    // Without SQL no table is read.
    ...(routes?.includes("sql") ?? true ? listed(tables, (names) => said.tables(names), said.noTables) : []),
  ];
  if (operator) return [isReadOnly ? said.operatorReads : said.operator, ...bounds];
  return bounds.length === 0 ? [said.all] : bounds;
}
