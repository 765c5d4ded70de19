// How a cell came to its answer, as `POST /v1/cells?details=true` tells it.

/** What the server tells of one cell; what it does not know is left out. */
export interface CellDetails {
  /** It ran, an equal cell ran for it, or it was known. */
  source?: "model" | "shared" | "cache";
  finish_reason?: "stop" | "length";
  /** How likely its text was among all that its function allows, 0 to 1. */
  probability?: number;
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    computed_tokens: number;
    prompt_tokens_details: { cached_tokens: number };
  };
  timing?: {
    waiting_ms: number;
    running_ms: number;
    /** Cells of the same request that started before it. */
    cells_before: number;
    /** Rows of all tenants that waited and ran when the request came. */
    rows_waiting?: number;
    rows_running?: number;
  };
}

/** What a cell's details weigh in memory, in characters. */
export const DETAILS_CHARACTERS = 200;
