// Stands where the grid would load its formula engine. Formulas are ours; the grid is told not to parse any.

/** Never called while `parseFormulas` is off. */
export default function formula(): never {
  throw new Error("the grid was asked to run a formula");
}
