// Tenants and keys, as operators see and change them.

import { type Amount, type Key, type Tenant, createKey, createTenant, invite, keyPage, me, revokeKey, setWeight, tenantPage } from "../net/people";
import { bytesText } from "../core/bytes";
import { rightsOf } from "../core/key-rights";
import type { Page } from "../core/pages";
import { visible } from "../core/visible";
import { count, t } from "../text";
import { type AdminSection, action, form, labelled, mainButton, shownOnce, when } from "./admin-parts";
import { confirmedLoss } from "./ask";
import { limitsText, setsLimits } from "./limits-dialog";
import { make, row } from "./make";
import { PagedTable } from "./paged-table";

/** The list of tenants' names that fields propose. */
const PROPOSALS = "admin-tenants";

/** A field for a tenant's name: there may be too many for a list to choose from. */
function tenantField(name: string): HTMLInputElement {
  const field = make("input", { name, required: "", maxlength: "100", autocomplete: "off", list: PROPOSALS });
  // What is typed takes the place of what stands there.
  field.addEventListener("focus", () => field.select());
  return field;
}

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
  private readonly proposals = make("datalist", { id: PROPOSALS });

  private readonly pages = new PagedTable<Tenant>({
    label: t.admin.tenants, heads: t.admin.tenantHeads, said: t.admin.tenantPages, proposals: PROPOSALS,
    read: (sought, before) => this.read(sought, before), row: (tenant) => this.tenant(tenant),
  });

  constructor(private readonly changed: () => void) {
    const name = make("input", { name: "tenant", required: "", maxlength: "100" });
    const add = form(mainButton(t.admin.addTenant), async () => {
      await createTenant(name.value, 1);
      name.value = "";
      this.pages.wantNewest();
      changed();
    }, labelled(t.admin.name, name));
    this.host = make("div", {}, this.pages.host, add, this.proposals);
  }

  refresh(): Promise<void> {
    return this.pages.refresh();
  }

  private async read(sought: string, before: number | undefined): Promise<Page<Tenant>> {
    const page = await tenantPage(sought, before);
    if (sought === "") this.proposals.replaceChildren(...page.data.map(({ name }) => make("option", { value: name })));
    return page;
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
    const limits = make("button", { type: "button", "aria-label": t.admin.setLimitsOf(visible(tenant.name)) }, t.admin.setLimits);
    limits.addEventListener("click", () => void setsLimits(tenant).then((isSet) => {
      if (!isSet) return;
      this.pages.focusRows();
      this.changed();
    }));
    return row(
      visible(tenant.name), make("span", {}, weight, problem), tenant.keys, amount(tenant.workbooks), amount(tenant.workbook_bytes, bytesText),
      tenant.cached_answers, amount(tenant.sql_day_tokens), amount(tenant.sql_day_calls), limitsText(tenant), limits,
    );
  }
}

/** Keys: made, shown once, revoked; and links that sign somebody in. */
export class KeySection implements AdminSection {
  readonly title = t.admin.keys;
  readonly host: HTMLElement;
  private readonly owner = tenantField("owner");
  private readonly guests = tenantField("guests");
  private isFilledIn = false;
  private readonly told = make("div", { id: "admin-told", class: "secret", role: "status" });

  private readonly pages = new PagedTable<Key>({
    label: t.admin.keys, heads: t.admin.keyHeads, said: t.admin.keyPages, proposals: PROPOSALS,
    read: keyPage, row: (key) => this.key(key),
  });

  constructor(private readonly changed: () => void) {
    const name = make("input", { name: "name", required: "", maxlength: "100" });
    const days = make("input", { name: "days", type: "number", min: "1", max: "36500", placeholder: t.admin.never });
    const operator = make("input", { name: "operator", type: "checkbox" });
    const add = form(mainButton(t.admin.makeKey), async () => {
      const wanted = { name: name.value, tenant: this.owner.value, operator: operator.checked };
      const made = await createKey(days.value ? { ...wanted, days: Number(days.value) } : wanted);
      this.told.replaceChildren(...shownOnce(t.admin.newKey(made.name), made.key ?? ""));
      name.value = "";
      this.pages.wantNewest();
      changed();
    }, labelled(t.admin.name, name), labelled(t.admin.tenant, this.owner), labelled(t.admin.days, days), labelled(t.admin.operator, operator));
    const operates = make("input", { name: "operates", type: "checkbox" });
    const ask = form(mainButton(t.admin.invite), async () => {
      const { path } = await invite(this.guests.value, operates.checked);
      this.told.replaceChildren(...shownOnce(t.admin.invitation, new URL(path, location.href).href));
    }, labelled(t.admin.tenant, this.guests), labelled(t.admin.operator, operates));
    this.host = make("div", {}, this.pages.host, add, ask, this.told);
  }

  async refresh(): Promise<void> {
    await Promise.all([this.pages.refresh(), this.fillIn()]);
  }

  /** The fields begin with the operator's own tenant. */
  private async fillIn(): Promise<void> {
    if (this.isFilledIn) return;
    const { tenant } = await me();
    this.isFilledIn = true;
    for (const field of [this.owner, this.guests]) field.value ||= tenant;
  }

  private key(key: Key): HTMLTableRowElement {
    const isExpired = key.expires !== null && key.expires * 1_000 <= Date.now();
    const state = key.revoked !== null ? "revoked" : isExpired ? "expired" : "works";
    const [name, tenant] = [visible(key.name), visible(key.tenant)];
    const question = t.admin.revokeTitle(key.id, name, tenant);
    const revoke = action(t.admin.revoke, t.admin.revokeOf(key.id, name), () => revokeKey(key.id), () => {
      this.pages.focusRows();
      this.changed();
    }, () => confirmedLoss(question, t.admin.revoke, t.admin.revokeMore));
    return row(
      key.id, name, tenant, make("code", {}, `${key.shown}…`), rightsOf(key, t.admin.rights).join("; "), when(key.last_used),
      when(key.expires), t.admin.states[state], state === "works" ? revoke : "",
    );
  }
}
