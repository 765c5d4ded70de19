// Tenants and keys, as operators see and change them.

import { type Amount, type Key, type Tenant, createKey, createTenant, invite, keys, revokeKey, setWeight, tenants } from "../net/people";
import { bytesText } from "../core/bytes";
import { count, t } from "../text";
import { type AdminSection, action, form, isInUse, labelled, shownOnce, when } from "./admin-parts";
import { make, row, table } from "./make";

/** An amount and its bound; the setting that sets it is told by the pointer. */
function amount({ used, max, setting }: Amount, write = count): HTMLTableCellElement {
  const text = max === null || max === 0 ? write(used) : t.admin.of(write(used), write(max));
  const made = make("td", { class: "number", ...(setting ? { title: setting } : {}) }, text);
  made.classList.toggle("bad", max !== null && used >= max);
  return made;
}

/** Tenants: weights, keys, workbooks, budgets. */
export class TenantSection implements AdminSection {
  readonly title = t.admin.tenants;
  readonly host: HTMLElement;
  private readonly rows = table(t.admin.tenants, t.admin.tenantHeads);

  constructor(private readonly changed: () => void) {
    const name = make("input", { name: "tenant", required: "", maxlength: "100" });
    const add = form(t.admin.addTenant, async () => {
      await createTenant(name.value, 1);
      name.value = "";
      changed();
    }, labelled(t.admin.name, name));
    this.host = make("div", {}, this.rows.host, add);
  }

  async refresh(): Promise<void> {
    const all = await tenants();
    if (!isInUse(this.rows.host)) this.rows.body.replaceChildren(...all.map((tenant) => this.tenant(tenant)));
  }

  private tenant(tenant: Tenant): HTMLTableRowElement {
    const weight = make("input", {
      type: "number", value: String(tenant.weight), min: "0.001", step: "any", "aria-label": t.admin.weightOf(tenant.name),
    });
    const problem = make("span", { class: "bad", role: "alert" });
    weight.addEventListener("change", () => {
      void setWeight(tenant.name, Number(weight.value)).then(() => {
        weight.blur();
        this.changed();
      }, (error: unknown) => {
        problem.textContent = error instanceof Error ? error.message : String(error);
      });
    });
    return row(
      tenant.name, make("span", {}, weight, problem), tenant.keys, amount(tenant.workbooks), amount(tenant.workbook_bytes, bytesText),
      tenant.cached_answers, amount(tenant.sql_day_tokens), amount(tenant.sql_day_calls),
    );
  }
}

/** Keys: made, shown once, revoked; and links that sign somebody in. */
export class KeySection implements AdminSection {
  readonly title = t.admin.keys;
  readonly host: HTMLElement;
  private readonly rows = table(t.admin.keys, t.admin.keyHeads);
  private readonly tenant = make("select", { name: "tenant" });
  private readonly guests = make("select", { name: "guests" });
  private readonly told = make("div", { id: "admin-told", class: "secret", role: "status" });

  constructor(private readonly changed: () => void) {
    const name = make("input", { name: "name", required: "", maxlength: "100" });
    const days = make("input", { name: "days", type: "number", min: "1", max: "36500", placeholder: t.admin.never });
    const operator = make("input", { name: "operator", type: "checkbox" });
    const add = form(t.admin.makeKey, async () => {
      const wanted = { name: name.value, tenant: this.tenant.value, operator: operator.checked };
      const made = await createKey(days.value ? { ...wanted, days: Number(days.value) } : wanted);
      this.told.replaceChildren(...shownOnce(t.admin.newKey(made.name), made.key ?? ""));
      name.value = "";
      changed();
    }, labelled(t.admin.name, name), labelled(t.admin.tenant, this.tenant), labelled(t.admin.days, days), labelled(t.admin.operator, operator));
    const operates = make("input", { name: "operates", type: "checkbox" });
    const ask = form(t.admin.invite, async () => {
      const { path } = await invite(this.guests.value, operates.checked);
      this.told.replaceChildren(...shownOnce(t.admin.invitation, new URL(path, location.href).href));
    }, labelled(t.admin.tenant, this.guests), labelled(t.admin.operator, operates));
    this.host = make("div", {}, this.rows.host, add, ask, this.told);
  }

  async refresh(): Promise<void> {
    const [all, known] = await Promise.all([keys(), tenants()]);
    this.rows.body.replaceChildren(...all.map((key) => this.key(key)));
    for (const list of [this.tenant, this.guests]) {
      const chosen = list.value;
      list.replaceChildren(...known.map(({ name }) => new Option(name, name, false, name === chosen)));
    }
  }

  private key(key: Key): HTMLTableRowElement {
    const isExpired = key.expires !== null && key.expires * 1_000 <= Date.now();
    const state = key.revoked !== null ? "revoked" : isExpired ? "expired" : "works";
    const revoke = action(t.admin.revoke, t.admin.revokeOf(key.id, key.name), () => revokeKey(key.id), this.changed);
    return row(
      key.id, key.name, key.tenant, make("code", {}, `${key.shown}…`), key.operator ? t.operator : "", when(key.last_used),
      when(key.expires), t.admin.states[state], state === "works" ? revoke : "",
    );
  }
}
