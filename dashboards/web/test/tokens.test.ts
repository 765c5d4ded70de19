// The tokens of the look: colours are those of the palette that they name, and what is read on them has contrast enough.

import { readFileSync } from "node:fs";

import * as radix from "@radix-ui/colors";
import { describe, expect, it } from "vitest";

const SOURCE = readFileSync(new URL("../../../client/src/tokens.css", import.meta.url), "utf8");
const SCALES = radix as unknown as Record<string, Record<string, string>>;

/** Colours by day and by night, and the steps of the palette that stand behind them in the source. */
const TOKENS = new Map(Array.from(
  SOURCE.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\); \/\* ([\w ,]+)/g),
  ([, name = "", day = "", night = "", steps = ""]) => [name, { day, night, steps: steps.split(",").map((step) => step.trim()) }],
));

function stepOf(name: string, isNight: boolean): string | undefined {
  if (name === "white") return "#ffffff";
  const [scale = "", step = ""] = name.split(" ");
  return SCALES[`${scale}${isNight ? "Dark" : ""}`]?.[`${scale}${step}`];
}

/** Relative luminance and contrast as WCAG 2.2 defines them. */
function luminance(colour: string): number {
  const parts = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255);
  const [red = 0, green = 0, blue = 0] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

describe("tokens", () => {
  it("are steps of Radix Colors, as they say", () => {
    expect(TOKENS.size).toBeGreaterThan(18);
    for (const [name, { day, night, steps: [first = "", second = first] }] of TOKENS) {
      expect([name, day, night]).toEqual([name, stepOf(first, false), stepOf(second, true)]);
    }
  });

  it.each(["day", "night"] as const)("can be read by %s", (time) => {
    const of = (name: string) => TOKENS.get(name)?.[time] ?? "";
    const grounds = ["paper", "shade", "raised", "hover", "tint"];
    const words = grounds.flatMap((ground) => ["ink", "quiet", "accent"].map((word) => [word, ground] as const));
    const marked = ["paper", "shade", "raised"].flatMap((ground) => ["bad", "good", "warn"].map((word) => [word, ground] as const));
    for (const [word, ground] of [...words, ...marked, ["on-solid", "solid"], ["on-solid", "solid-hover"], ["bad", "bad-tint"]] as const) {
      expect(contrast(of(word), of(ground)), `${word} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
    // What is no text: the edge of a field, the ring of the focus.
    for (const [mark, ground] of [["edge", "paper"], ["edge", "raised"], ["accent", "paper"], ["accent", "shade"]] as const) {
      expect(contrast(of(mark), of(ground)), `${mark} on ${ground}`).toBeGreaterThanOrEqual(3);
    }
  });
});
