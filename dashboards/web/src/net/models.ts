// The models that the server has, and those that it could have.

import type { KnownModel } from "../core/models";
import { type List, call } from "./api";

/** Models that can be served on the server's machine by their names. */
export const knownModels = async () => (await call<List<KnownModel>>("GET", "v1/known-models")).data;
