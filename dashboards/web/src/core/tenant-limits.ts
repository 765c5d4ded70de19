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

/** What the fields say of a tenant. A limit that it does not have is empty. */
export function limitTexts(tenant: TenantLimits): LimitTexts {
  const max = (amount: Bounded | undefined) => String(amount?.max ?? "");
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

/**
 * What the server is sent to set just these limits: it has no bound by what is not named. What is no number here goes as it was
 * typed, and the server says what it wants: `1.000` is a thousand to some, and one to others.
 */
export function limitsOf(texts: LimitTexts): Record<string, number | string | string[]> {
  const entries = LIMITS.flatMap((name): [string, number | string | string[]][] => {
    const text = texts[name].trim();
    if (text === "") return [];
    if (name === "models") {
      const models = text === NO_MODELS ? [] : text.split(",").map((model) => model.trim()).filter((model) => model !== "");
      return [[name, models]];
    }
    const isNumber = name.endsWith("_cost") ? /^\d+(\.\d+)?$/ : /^\d+$/;
    return [[name, isNumber.test(text) ? Number(text) : text]];
  });
  return Object.fromEntries(entries);
}

/** The limit that a refusal is about, by the path of its field; of a list, that of the list. */
export function limitAt(param: string | undefined): LimitName | undefined {
  const field = /^limits\.(\w+)/.exec(param ?? "")?.[1];
  return LIMITS.find((name) => name === field);
}
