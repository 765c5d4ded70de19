// The limits of a tenant: what they are, and a dialog that sets them.

import { RequestError } from "relserve-client/wire";

import { LIMITS, type LimitName, type LimitTexts, limitAt, limitTexts, limitsOf } from "../core/tenant-limits";
import { visible } from "../core/visible";
import { type Tenant, setLimits } from "../net/people";
import { count, decimal, language, t } from "../text";
import { words } from "./admin-parts";
import { make } from "./make";

/** An amount of money: cents where that is all of it. */
const money = (amount: number) => decimal(amount, Number.isInteger(amount * 100) ? 2 : 6);

/** The limits that a tenant has, with what of them is used. */
export function limitsText(tenant: Tenant): string {
  const texts = limitTexts(tenant, language);
  const said = LIMITS.filter((name) => texts[name] !== "").map((name) => {
    const limit = tenant[name];
    const write = name.endsWith("_cost") ? money : count;
    if (typeof limit === "number") return t.admin.limits[name].is(write(limit), "");
    const isBounded = typeof limit === "object" && "used" in limit;
    return isBounded ? t.admin.limits[name].is(write(limit.max ?? 0), write(limit.used)) : t.admin.limits[name].is(texts[name], "");
  });
  return said.length === 0 ? t.admin.noLimits : said.join("; ");
}

/** A limit's field: its label, what it takes, and what the server says of it. */
function field(name: LimitName, text: string): { host: HTMLElement; input: HTMLInputElement; refuse(problem: string): void } {
  const id = `limit-${name}`;
  const input = make("input", {
    id, name, autocomplete: "off", placeholder: t.admin.noLimit, "aria-describedby": `${id}-problem`,
    inputmode: name === "models" ? "text" : "decimal",
  });
  input.value = text;
  const problem = make("p", { id: `${id}-problem`, class: "bad", role: "alert" });
  return {
    host: make("div", {}, make("label", { for: id }, t.admin.limits[name].label, input), problem),
    input,
    refuse: (words) => {
      problem.textContent = words;
      input.setAttribute("aria-invalid", String(words !== ""));
    },
  };
}

/** What to type into a limit's field. */
function expected(name: LimitName): string {
  if (name === "models") return t.admin.limitModels;
  return t.admin.limitNumber(name.endsWith("_cost") ? decimal(250.25, 2) : count(2_000_000));
}

/** Shows the limits of a tenant until they are set, or it is closed; whether they were set. */
export function setsLimits(tenant: Tenant): Promise<boolean> {
  const texts = limitTexts(tenant, language);
  const fields = LIMITS.map((name) => ({ name, ...field(name, texts[name]) }));
  const problem = make("p", { class: "bad", role: "alert" });
  const cancel = make("button", { type: "button" }, t.cancel);
  const save = make("button", { type: "submit", class: "main" }, t.admin.setLimits);
  const form = make(
    "form", {}, make("h2", { id: "limits-title" }, t.admin.limitsOf(visible(tenant.name))), make("p", { class: "quiet" }, t.admin.limitsHint),
    ...fields.map(({ host }) => host), problem, make("div", { class: "bar" }, make("span", { class: "grow" }), cancel, save),
  );
  const dialog = make("dialog", { "aria-labelledby": "limits-title" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let isSet = false;
    const set = async () => {
      problem.textContent = "";
      fields.forEach(({ refuse }) => refuse(""));
      const typed = Object.fromEntries(fields.map(({ name, input }) => [name, input.value])) as LimitTexts;
      const { limits, wrong } = limitsOf(typed, language);
      const wrongFields = fields.filter(({ name }) => wrong.includes(name));
      wrongFields.forEach(({ name, refuse }) => refuse(expected(name)));
      wrongFields[0]?.input.focus();
      if (wrongFields.length > 0) return;
      save.disabled = true;
      try {
        await setLimits(tenant.name, limits);
        isSet = true;
        dialog.close();
      } catch (error) {
        const name = error instanceof RequestError ? limitAt(error.param) : undefined;
        const refused = fields.find((one) => one.name === name);
        refused?.refuse(words(error));
        refused?.input.focus();
        if (!refused) problem.textContent = words(error);
      } finally {
        save.disabled = false;
      }
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void set();
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(isSet);
    });
    dialog.showModal();
  });
}
