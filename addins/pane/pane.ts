// The pane of both sheets: signing in, the model, the wizard, tools for selected cells, and the run bar.

import type { Engine } from "../shared/engine";
import { at, make, wordsOf, write } from "./dom";
import type { PaneHost } from "./host";
import { RunBar } from "./run-bar";
import { SignIn } from "./sign-in";
import { Wizard } from "./wizard";

/** Fills the pane; gives what tells it that counts changed. */
export function startPane(engine: Engine, host: PaneHost): () => void {
  const say = (words: string) => write(at("message", HTMLParagraphElement), words);
  const signIn = new SignIn(host, () => engine.retry());
  const wizard = new Wizard(host, engine);
  const bar = new RunBar(engine);
  at("tools", HTMLDivElement).append(...host.tools.map(({ label, run }) => {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", () => void run().then(say, (error: unknown) => say(wordsOf(error))));
    return button;
  }));
  const problem = (error: unknown) => say(wordsOf(error));
  void signIn.show().catch(problem);
  void wizard.read().catch(problem);
  // Who comes back from the cells may have typed some.
  if (host.readsFast) window.addEventListener("focus", () => void wizard.read().catch(problem));
  bar.show();
  return () => bar.show();
}
