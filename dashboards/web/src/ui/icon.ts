// Icons that are made while the page runs; those of `index.html` are put in by the build. Drawings are Lucide's.

import { type IconNode, createElement } from "lucide";

/** An icon that says nothing: what it stands in has a name. */
export function icon(drawing: IconNode): SVGElement {
  return createElement(drawing, { class: "icon", "aria-hidden": "true" });
}
