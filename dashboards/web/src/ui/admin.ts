// What operators see and change: tenants with their weights and budgets, keys, usage over time, replicas, caches.

import { make, section } from "./make";
import { element } from "./dom";
import { CacheSection, ReplicaSection } from "./admin-machine";
import { KeySection, TenantSection } from "./admin-people";
import { UsageSection } from "./admin-usage";
import { type AdminSection, words } from "./admin-parts";
import "./admin.css";

/** The view is read anew this often, in milliseconds, while it is seen. */
const LOOK_MS = 10_000;

/** The view. */
export class AdminView {
  private readonly host = element("admin", HTMLElement);
  private readonly problem = make("p", { class: "bad", role: "alert" });
  private readonly sections: AdminSection[];
  private timer: number | undefined;

  constructor() {
    const refresh = () => void this.refresh();
    this.sections = [
      new TenantSection(refresh), new KeySection(refresh), new UsageSection(), new ReplicaSection(refresh), new CacheSection(),
    ];
    const parts = this.sections.map(({ title, host }, at) => section(`admin-${at}`, title, host));
    this.host.replaceChildren(this.problem, ...parts);
  }

  /** Starts or stops. */
  show(on: boolean): void {
    clearInterval(this.timer);
    if (!on) return;
    this.timer = window.setInterval(() => !document.hidden && void this.refresh(), LOOK_MS);
    void this.refresh();
  }

  private async refresh(): Promise<void> {
    const read = await Promise.allSettled(this.sections.map((one) => one.refresh()));
    const failed = read.find((one) => one.status === "rejected");
    this.problem.textContent = failed ? words(failed.reason) : "";
  }
}
