// Sizes as people read them.

import { count, decimal, t } from "../text";

const UNITS = ["", "KiB", "MiB", "GiB", "TiB"] as const;

/** Bytes in the largest unit of which there is one at least; one decimal below ten. */
export function bytesText(bytes: number): string {
  const step = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const value = bytes / 1_024 ** step;
  if (step === 0) return t.bytes(bytes);
  const digits = value < 9.95 && Math.round(value * 10) % 10 !== 0 ? 1 : 0;
  return `${digits > 0 ? decimal(value, digits) : count(Math.round(value))} ${UNITS[step] ?? ""}`;
}
