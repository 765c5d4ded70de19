// Sizes as people read them.

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"] as const;

/** Bytes in the largest unit of which there is one at least; one decimal below ten. */
export function bytesText(bytes: number): string {
  const step = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const value = bytes / 1_024 ** step;
  return `${step > 0 && value < 9.95 ? Number(value.toFixed(1)) : Math.round(value)} ${UNITS[step] ?? ""}`;
}
