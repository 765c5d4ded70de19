// A tenant's limits, as its operators see and set them: fields of text, and what the server takes.

/** What the server tells of an amount that a limit bounds. */
interface Bounded {
  used: number;
  max: number | null;
}

/** A tenant's limits, of those that it has. */
export interface TenantLimits {
  day_tokens?: Bounded;
  month_tokens?: Bounded;
  day_cost?: Bounded;
  month_cost?: Bounded;
  minute_requests?: number;
  models?: string[];
}

/** The limits, in the order of the form. */
export const LIMITS = ["day_tokens", "month_tokens", "day_cost", "month_cost", "minute_requests", "models"] as const;
export type LimitName = (typeof LIMITS)[number];
export type LimitTexts = Record<LimitName, string>;

/** Stands for a list of models that has none. */
const NO_MODELS = "-";

/** The signs by which a language writes numbers. */
function signsOf(language: string): { group: string; decimal: string } {
  const parts = new Intl.NumberFormat(language).formatToParts(1_234_567.5);
  const sign = (type: "group" | "decimal") => parts.find((part) => part.type === type)?.value ?? "";
  return { group: sign("group"), decimal: sign("decimal") };
}

/** A number as a language writes it, its thousands apart or not; undefined: it is none, or may be read in two ways. */
function numberOf(text: string, language: string): number | undefined {
  const { group, decimal } = signsOf(language);
  const [whole = "", fraction, ...more] = text.split(decimal);
  const groups = whole.split(group);
  const isWhole = groups.every((digits, at) => (at === 0 ? /^\d+$/ : /^\d{3}$/).test(digits));
  const isApart = groups.length === 1 || (groups[0]?.length ?? 0) <= 3;
  if (!isWhole || !isApart || more.length > 0 || !/^\d+$/.test(fraction ?? "0")) return undefined;
  return Number(`${groups.join("")}.${fraction ?? "0"}`);
}

/** What the fields say of a tenant, in a language. A limit that it does not have is empty. */
export function limitTexts(tenant: TenantLimits, language: string): LimitTexts {
  const { decimal } = signsOf(language);
  const max = (amount: Bounded | undefined) => String(amount?.max ?? "").replace(".", decimal);
  const { models } = tenant;
  return {
    day_tokens: max(tenant.day_tokens),
    month_tokens: max(tenant.month_tokens),
    day_cost: max(tenant.day_cost),
    month_cost: max(tenant.month_cost),
    minute_requests: String(tenant.minute_requests ?? ""),
    models: models?.length === 0 ? NO_MODELS : (models ?? []).join(", "),
  };
}

/** What the server is sent, and the fields whose texts mean nothing. */
export interface ReadLimits {
  limits: Partial<Record<LimitName, number | string[]>>;
  wrong: LimitName[];
}

/**
 * Reads the fields in a language. The server sets just these limits: it has no bound by what is not named. What may be read in
 * two ways is wrong: `1.000` is a thousand to some, and one to others.
 */
export function limitsOf(texts: LimitTexts, language: string): ReadLimits {
  const read: ReadLimits = { limits: {}, wrong: [] };
  for (const name of LIMITS) {
    const text = texts[name].trim();
    if (text === "") continue;
    if (name === "models") {
      const models = text === NO_MODELS ? [] : text.split(",").map((model) => model.trim()).filter((model) => model !== "");
      // Commas alone are a slip, and would leave the tenant no model at all.
      if (models.length === 0 && text !== NO_MODELS) read.wrong.push(name);
      else read.limits[name] = models;
      continue;
    }
    const value = numberOf(text, language);
    const hasFraction = text.includes(signsOf(language).decimal);
    if (value === undefined || (hasFraction && !name.endsWith("_cost"))) read.wrong.push(name);
    else read.limits[name] = value;
  }
  return read;
}

/** The limit that a refusal is about, by the path of its field; of a list, that of the list. */
export function limitAt(param: string | undefined): LimitName | undefined {
  const field = /^limits\.(\w+)/.exec(param ?? "")?.[1];
  return LIMITS.find((name) => name === field);
}
