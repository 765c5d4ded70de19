// The models that the server has and could have, as it tells of them, and what the page makes of that. Pure.

/** Functions whose answers are picked out of given ones: what the demo model does, and all that it does. */
export const PICKING: readonly string[] = ["classify", "rate"];

/** A model of `GET /v1/models`. */
export interface ServedModel {
  id: string;
  /** The model that an alias stands for. */
  root?: string;
  description?: string;
  /** Whether it refuses functions that write text. */
  picks_only?: boolean;
  /** Longest prompt and output together, in tokens; absent where its replicas alone know. */
  max_model_len?: number;
}

/** A model of `GET /v1/known-models`. */
export interface KnownModel {
  name: string;
  description: string;
  licence: string;
  download_bytes: number;
  memory_bytes: number;
  /** Whether the machine has that memory; null where it is not known. */
  fits: boolean | null;
  availability: "served" | "fetched" | "not_fetched";
  command: string;
}

/** The models without their aliases: the default one first. */
export function modelsOf(served: readonly ServedModel[]): ServedModel[] {
  return served.filter(({ root }) => root === undefined);
}

/** The model that answers: the one of a name or an alias, the default one without; nothing where none has the name. */
export function answering(served: readonly ServedModel[], name: string | undefined): ServedModel | undefined {
  return name === undefined ? served[0] : served.find(({ id }) => id === name);
}

/** The model of `./run`, as it is or named by a path or a quantization: most of what wants a larger model it answers wrongly. */
const SMALLEST = /\bsmollm2-135m/i;

/** Whether a model does a task well enough to be offered first; one that is not known is taken at its word. */
export function isWithin(model: ServedModel | undefined, { isBeyondDemo, wantsLarger }: { isBeyondDemo: boolean; wantsLarger: boolean }): boolean {
  if (model?.picks_only === true) return !isBeyondDemo && !wantsLarger;
  return !wantsLarger || !SMALLEST.test(model?.root ?? model?.id ?? "");
}

/** Whether a model refuses a function of the catalogue. */
export function refuses(model: ServedModel | undefined, name: string): boolean {
  return model?.picks_only === true && !PICKING.includes(name);
}
